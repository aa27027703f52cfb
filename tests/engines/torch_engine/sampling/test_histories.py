"""What was counted of a request is what its tokens are, however it is asked."""

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from engines.scheduling.batch import Draw
from engines.torch_engine.sampling.histories import LEAST_KEPT, Histories, Tally
from mesh.wire.requests import Sampling

VOCABULARY = 7
ROW = torch.zeros(VOCABULARY)
SAMPLING = Sampling(max_tokens=8, seed=1)


def check(histories: Histories, tokens: list[int], num_prompt: int, request: str = "r") -> None:
    history = histories.of(Draw(SAMPLING, tokens, num_prompt, len(tokens), request), ROW)
    assert counted(history.seen) == within(tokens)
    assert counted(history.generated) == within(tokens[num_prompt:])


def counted(tally: Tally) -> dict[int, int]:
    assert len(set(tally.ids.tolist())) == len(tally.ids), "a token is there twice"
    return dict(zip(tally.ids.tolist(), tally.counts.tolist(), strict=True))


def within(tokens: list[int]) -> Counter[int]:
    return Counter(token for token in tokens if 0 <= token < VOCABULARY)


tokens = st.lists(st.integers(-1, VOCABULARY), min_size=1, max_size=12)


@given(tokens, st.integers(0, 12), st.lists(tokens, max_size=6))
def test_a_list_that_grows_is_counted_as_one_that_is_new(start: list[int], num_prompt: int, more: list[list[int]]):
    histories, own = Histories(), list(start)
    for new in [[], *more]:
        own += new
        check(histories, own, min(num_prompt, len(start)))


def test_another_list_under_the_same_name_is_counted_anew():
    histories = Histories()
    check(histories, [1, 2, 3], 1)
    check(histories, [1, 4, 4, 5], 1)
    check(histories, [6], 1)


def test_a_draw_counts_what_is_new_only():
    histories, tokens = Histories(), [1, 2]
    check(histories, tokens, 2)
    tokens[0] = 5  # which nobody does: it shows that the first tokens are not looked at again
    tokens.append(3)
    history = histories.of(Draw(SAMPLING, tokens, 2, 3, "r"), ROW)
    assert counted(history.seen) == {1: 1, 2: 1, 3: 1}


def test_few_are_kept():
    histories = Histories()
    for number in range(200):
        check(histories, [1], 1, f"r{number}")
        histories.forget_beyond(1)
    assert len(histories) == LEAST_KEPT
