from hypothesis import given
from hypothesis import strategies as st

from mesh.prefix_names import PREFIX_STEP, prefix_end
from router.view.prefixes import PrefixIndex

prefixes = st.lists(st.integers(0, 5), max_size=4).map(
    lambda path: tuple(hash(tuple(path[: n + 1])) for n in range(len(path)))
)
POOL = 9 * PREFIX_STEP


def index_of(*sent):
    index = PrefixIndex()
    for prefix, engine in sent:
        index.add(prefix, engine, POOL)
    return index


def test_what_was_dispatched_is_likely_there():
    index = index_of(([1, 2, 3], "p"), ([1, 2, 3], "d"), ([1, 2, 9], "q"))
    assert index.cached_tokens([1, 2, 3, 4]) == {"p": 3 * PREFIX_STEP, "d": 3 * PREFIX_STEP, "q": 2 * PREFIX_STEP}
    assert index.cached_tokens([7]) == {}
    assert index.cached_tokens([]) == {}


def test_a_lost_engine_holds_nothing():
    index = index_of(([1], "p"), ([1], "q"), ([2], "p"))
    index.forget("p")
    index.forget("unknown")
    assert index.cached_tokens([1]) == {"q": PREFIX_STEP}
    assert index.cached_tokens([2]) == {}


def test_an_engine_holds_no_more_than_its_pool():
    index = PrefixIndex()
    for prefix in ([1], [2], [1], [3]):
        index.add(prefix, "p", 2 * PREFIX_STEP + 16)
    assert index.cached_tokens([2]) == {}, "the longest unused"
    assert index.cached_tokens([1]) == index.cached_tokens([3]) == {"p": PREFIX_STEP}


def test_what_was_refused_is_not_there_unless_it_was_before():
    index = index_of(([1], "p"))
    new = index.add([1, 2, 3], "p", POOL)
    assert new == [2, 3]
    index.take_back(new, "p")
    assert index.cached_tokens([1, 2, 3]) == {"p": PREFIX_STEP}


def test_of_a_prompt_the_tail_is_forgotten_before_the_head():
    index = PrefixIndex()
    index.add([1, 2, 3], "p", 4 * PREFIX_STEP)
    index.add([7, 8], "p", 4 * PREFIX_STEP)
    assert index.cached_tokens([1, 2, 3]) == index.cached_tokens([7, 8]) == {"p": 2 * PREFIX_STEP}


@given(st.lists(st.tuples(prefixes, st.sampled_from("abc")), max_size=2), prefixes)
def test_an_engine_holds_the_longest_beginning_that_it_was_sent(sent, asked):
    expected = {}
    for prefix, engine in sent:
        common = sum(1 for one, other in zip(prefix, asked, strict=False) if one == other)
        if common:
            expected[engine] = max(expected.get(engine, 0), common * PREFIX_STEP)
    assert index_of(*sent).cached_tokens(asked) == expected


def test_long_prefixes_fill_a_pool_by_their_tokens():
    index, names = PrefixIndex(), list(range(6))
    index.add(names, "p", prefix_end(5))
    assert index.cached_tokens(names) == {"p": prefix_end(5)}
    index.add([9], "p", prefix_end(5))
    assert index.cached_tokens(names) == {"p": prefix_end(4)}


def test_an_engine_that_tells_what_it_keeps_is_not_guessed_about():
    index = index_of(([1, 2], "p"))
    index.tell("p", [5, 6], [], cleared=False)
    assert index.cached_tokens([1]) == {}, "guessed before"
    index.add([1, 2], "p", POOL)
    assert (index.cached_tokens([1]), index.cached_tokens([5, 6])) == ({}, {"p": 2 * PREFIX_STEP})
    index.tell("p", [7], [6, 9], cleared=False)
    assert (index.cached_tokens([5, 6]), index.cached_tokens([7])) == ({"p": PREFIX_STEP}, {"p": PREFIX_STEP})
    index.tell("p", [8], [], cleared=True)
    assert (index.cached_tokens([7]), index.cached_tokens([8])) == ({}, {"p": PREFIX_STEP})
    index.forget("p")
    index.add([1], "p", POOL)
    assert index.cached_tokens([1]) == {"p": PREFIX_STEP}, "it begins anew, and does not tell yet"


def test_what_an_engine_tells_corrects_what_was_guessed():
    index = index_of(([1, 2, 3], "p"))
    index.hear("p", [1, 2, 4], [3], is_all=False)
    assert index.cached_tokens([1, 2, 3]) == {"p": 2 * PREFIX_STEP}
    assert index.cached_tokens([1, 4]) == {"p": 2 * PREFIX_STEP}
    index.hear("p", [], [4], is_all=False)
    assert index.cached_tokens([4]) == {}


def test_guesses_go_on_beside_what_is_told_and_take_no_room_from_it():
    index = PrefixIndex()
    index.hear("p", [1, 2], [], is_all=False)
    for names in ([1, 2, 3], [7], [8]):
        index.add(names, "p", 2 * PREFIX_STEP)
    assert index.cached_tokens([1, 2, 3]) == {"p": 2 * PREFIX_STEP}, "the longest unused guess"
    assert index.cached_tokens([7]) == index.cached_tokens([8]) == {"p": PREFIX_STEP}
    index.take_back([1, 8], "p")
    assert (index.cached_tokens([1]), index.cached_tokens([8])) == ({"p": PREFIX_STEP}, {})


def test_all_that_is_told_replaces_what_was_told():
    index = index_of(([9], "p"))
    index.hear("p", [1, 2], [], is_all=False)
    index.hear("p", [2], [], is_all=True)
    assert [index.cached_tokens([name]) for name in (1, 2, 9)] == [{}, {"p": PREFIX_STEP}, {"p": PREFIX_STEP}]
    index.forget("p")
    assert [index.cached_tokens([name]) for name in (2, 9)] == [{}, {}]
