from hypothesis import given
from hypothesis import strategies as st

from router.prefixes import PrefixIndex
from router.records import PROMPT_BLOCK

prefixes = st.lists(st.integers(0, 5), max_size=4).map(
    lambda path: tuple(hash(tuple(path[: n + 1])) for n in range(len(path)))
)
engines = st.sets(st.sampled_from("abc"), min_size=1, max_size=2)


def test_what_was_dispatched_is_likely_there():
    index = PrefixIndex()
    index.add([1, 2, 3], ["p", "d"])
    index.add([1, 2, 9], ["q"])
    assert index.cached_tokens([1, 2, 3, 4]) == {"p": 3 * PROMPT_BLOCK, "d": 3 * PROMPT_BLOCK, "q": 2 * PROMPT_BLOCK}
    assert index.cached_tokens([7]) == {}
    assert index.cached_tokens([]) == {}


def test_an_engine_that_found_less_is_believed():
    index = PrefixIndex()
    index.add([1, 2, 3], ["p"])
    index.correct([1, 2, 3], "p", PROMPT_BLOCK + 16)
    assert index.cached_tokens([1, 2, 3]) == {"p": PROMPT_BLOCK}


def test_a_lost_engine_holds_nothing():
    index = PrefixIndex()
    index.add([1], ["p", "q"])
    index.forget("p")
    assert index.cached_tokens([1]) == {"q": PROMPT_BLOCK}


def test_the_longest_unused_is_forgotten():
    index = PrefixIndex(kept_blocks=2)
    index.add([1], ["p"])
    index.add([2], ["p"])
    index.add([1], ["q"])
    index.add([3], ["p"])
    assert index.cached_tokens([2]) == {}
    assert index.cached_tokens([1]) == {"p": PROMPT_BLOCK, "q": PROMPT_BLOCK}


@given(st.lists(st.tuples(prefixes, engines)), prefixes)
def test_an_engine_holds_the_longest_beginning_that_it_was_sent(sent, asked):
    index = PrefixIndex()
    for prefix, engines_ in sent:
        index.add(prefix, engines_)
    expected = {}
    for prefix, engines_ in sent:
        common = sum(1 for one, other in zip(prefix, asked, strict=False) if one == other)
        for engine in engines_ if common else ():
            expected[engine] = max(expected.get(engine, 0), common * PROMPT_BLOCK)
    assert index.cached_tokens(asked) == expected
