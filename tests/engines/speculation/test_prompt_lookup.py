"""Prompt lookup finds where the last tokens came before, whatever is asked of it when."""

from random import Random

from engines.speculation.prompt_lookup import GRAM, MOST_INDEXED, PromptLookup
from tests.seeds import each_seed


def test_what_followed_the_last_tokens_is_drafted():
    lookup = PromptLookup([5, 1, 2, 3, 8, 9, 7, 1, 2, 3])
    assert lookup.look() == GRAM
    assert lookup.draft(2) == [8, 9]


def test_nothing_is_found_where_nothing_came_before():
    assert PromptLookup(list(range(40))).look() == 0
    assert PromptLookup([]).look() == 0
    assert PromptLookup([1, 1]).look() == 0


def test_a_repetition_is_taken_to_go_on():
    lookup = PromptLookup([9, 1, 2, 1, 2, 1, 2])
    assert lookup.look() >= GRAM
    assert lookup.draft(5) == [1, 2, 1, 2, 1]


def test_a_match_grows_as_long_as_it_holds():
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]
    lookup = PromptLookup(tokens)
    lookup.look()
    tokens += [4, 5]
    assert lookup.look() == GRAM + 2
    assert lookup.draft(2) == [6, 7]
    tokens += [99]
    assert lookup.look() == 0


def test_the_last_place_counts():
    lookup = PromptLookup([1, 2, 3, 4, 0, 1, 2, 3, 5, 0, 1, 2, 3])
    lookup.look()
    assert lookup.draft(1) == [5]


def test_a_long_prompt_is_taken_in_by_several_looks():
    tokens = [*range(MOST_INDEXED + 10), 3, 4, 5]
    lookup = PromptLookup(tokens)
    assert lookup.look() == GRAM
    tokens += [MOST_INDEXED + 5, MOST_INDEXED + 6, MOST_INDEXED + 7]
    assert lookup.look() == GRAM
    assert lookup.draft(2) == [MOST_INDEXED + 8, MOST_INDEXED + 9]


@each_seed(10)
def test_what_is_drafted_came_before_after_as_many_tokens_as_it_says(seed: int):
    random, tokens = Random(seed), list[int]()
    lookup = PromptLookup(tokens)
    while len(tokens) < 150:
        tokens += [random.randrange(3) for _ in range(random.randint(1, 6))]
        grams = {tuple(tokens[end - GRAM : end]) for end in range(GRAM, len(tokens))}
        length = lookup.look()
        assert bool(length) == (tuple(tokens[-GRAM:]) in grams and len(tokens) > GRAM)
        if length:
            draft = lookup.draft(4)
            assert len(draft) == 4
            seen = tokens[-length:] + draft[:1]
            assert any(tokens[at : at + length + 1] == seen for at in range(len(tokens) - length))
