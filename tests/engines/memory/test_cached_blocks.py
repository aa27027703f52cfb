from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from engines.memory.cached_blocks import CachedBlocks

NUM_BLOCKS = 12


def test_the_tail_of_the_oldest_table_goes_first():
    cached = CachedBlocks(NUM_BLOCKS)
    cached.add([3, 1, 2], now=1)
    cached.add([7, 5], now=2)
    assert list(cached.first(2)) == [2, 1]
    assert cached.pop(2) == 1
    assert (len(cached), cached.since) == (3, 1)
    assert [cached.pop(), cached.pop(), cached.pop()] == [3, 5, 7]
    assert not cached


def test_what_is_taken_out_and_released_again_goes_last():
    cached = CachedBlocks(NUM_BLOCKS)
    cached.add([4, 6], now=1)
    cached.add([8], now=2)
    cached.remove(6)
    cached.add([6], now=3)
    assert [cached.pop(), cached.pop(), cached.pop()] == [4, 8, 6]


@given(st.lists(st.one_of(st.just("pop"), st.integers(0, NUM_BLOCKS - 1), st.sets(st.integers(0, NUM_BLOCKS - 1)))))
def test_it_is_an_ordered_dictionary_of_blocks(changes: list[str | int | set[int]]):
    cached, expected = CachedBlocks(NUM_BLOCKS), OrderedDict[int, int]()
    for now, change in enumerate(changes, start=1):
        match change:
            case "pop" if expected:
                assert list(cached.first(1)) == [next(iter(expected))]
                assert cached.pop() == expected.popitem(last=False)[0]
            case int() if change in expected:
                cached.remove(change)
                del expected[change]
            case set():
                table = sorted(change - expected.keys())
                cached.add(table, now)
                expected |= dict.fromkeys(reversed(table), now)
        assert len(cached) == len(expected)
        assert set(cached) == set(expected)
        assert cached.since == next(iter(expected.values()), float("inf"))
