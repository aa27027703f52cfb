"""How many threads each engine of a host has, by who works."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.threads.sharing import Threads, num_threads

PAIR = [Threads(1, 4), Threads(1, 4)]


@pytest.mark.parametrize(
    ("engines", "works", "num_cores", "expected"),
    [
        (PAIR, [True, False], 2, [2, 1]),  # who rests would have only its own, if it began
        (PAIR, [True, True], 2, [1, 1]),
        (PAIR, [True, False], 8, [4, 4]),  # as many as it may, whatever is idle beside
        (PAIR, [True, True], 8, [4, 4]),
        (PAIR, [True, True], 5, [3, 2]),  # the first gets what remains
        (PAIR, [True, False], 1, [1, 1]),  # fewer cores than threads
        ([Threads(1, 1), Threads(1, 4)], [True, True], 4, [1, 3]),  # what may have no more leaves it to others
        ([Threads(2, 4), Threads(1, 1), Threads(1, 1)], [True, False, True], 4, [3, 1, 1]),
    ],
)
def test_idle_cores_are_divided_among_those_that_work(engines, works, num_cores, expected):
    assert [num_threads(me, engines, works, num_cores) for me in range(len(engines))] == expected


@given(
    engines=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=6),
    works=st.lists(st.booleans(), min_size=6, max_size=6),
    num_cores=st.integers(1, 32),
)
def test_those_that_work_never_have_more_than_there_are_cores(engines, works, num_cores):
    threads = [Threads(own, own + more) for own, more in engines]
    works = works[: len(threads)]
    found = [num_threads(me, threads, works, num_cores) for me in range(len(threads))]
    assert all(one.own <= number <= one.most for one, number in zip(threads, found, strict=True))
    working = [number for number, is_working in zip(found, works, strict=True) if is_working]
    owned = sum(one.own for one, is_working in zip(threads, works, strict=True) if is_working)
    assert sum(working) <= max(num_cores, owned)
