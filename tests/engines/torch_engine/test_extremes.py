"""Numbers at their edges: a row without a distribution fails its own request, and no index leaves the vocabulary."""

from math import inf, nan
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engines.grammars.masks import Masks
from engines.grammars.process import Vocabulary
from engines.scheduling.batch import Draw, Unsampled
from engines.torch_engine.sampling.rows import sample_tokens
from engines.torch_engine.sampling.sampler import NOT_FINITE, NOTHING_LEFT, Sampler
from mesh.wire.requests import FailureCode, Sampling

EOS = 2
WIDTHS = [12, 64]  # of vocabularies: the second takes the way of long rows
FOUR = [0, 1, 2, 3]
EDGES = [0.0, -0.0, 1e-320, 1e-40, 1e-5, 0.5, 1.0, 1e38, 3.4e38, 1e39, 1e308, inf, -1e-40, -1.0, -1e39, -inf, nan]
ALL_FORBIDDEN = dict.fromkeys(range(max(WIDTHS)), -inf)

numbers = st.sampled_from(EDGES) | st.floats()
tokens = st.sampled_from([-(2**63), -1, 0, 1, 5, 11, 12, 63, 64, 2**31, 2**63 - 1])
samplings = st.builds(
    Sampling,
    max_tokens=st.just(8),
    seed=st.sampled_from([-(2**63), -1, 0, 2**63 - 1, 2**64]),
    temperature=numbers,
    top_p=numbers,
    top_k=st.sampled_from([-(2**31), -1, 0, 1, 12, 2**31]),
    min_p=numbers,
    presence_penalty=numbers,
    frequency_penalty=numbers,
    repetition_penalty=numbers,
    logit_bias=st.dictionaries(tokens, numbers, max_size=4) | st.just(ALL_FORBIDDEN),
    stop_token_ids=st.lists(tokens, max_size=3).map(tuple),
    min_tokens=st.sampled_from([0, 3, 2**31]),
    logprobs=st.sampled_from([None, 0, 3]),
)


def sampler(width: int) -> Sampler:
    return Sampler([EOS, 10**9], Masks(Vocabulary(Path("nowhere"), width, (EOS,))))


def plain(**changes: object) -> Sampling:
    return Sampling(**({"max_tokens": 8, "seed": 1, "temperature": 1.0} | changes))  # type: ignore[arg-type]


def draw(sampling: Sampling, num_generated: int = 2, request: str = "r") -> Draw:
    return Draw(sampling, FOUR, len(FOUR) - num_generated, len(FOUR), request)


@pytest.mark.parametrize("width", WIDTHS)
@given(hostile=samplings, num_generated=st.integers(0, 4), data=st.data())
def test_whatever_one_request_asks_for_the_others_draw_what_they_draw_alone(
    width: int, hostile: Sampling, num_generated: int, data: st.DataObject
):
    logits = torch.randn(4, width, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    honest = [plain(), plain(top_p=0.7, seed=3), plain(temperature=0.0, logit_bias={3: 2.0})]
    alone = [sampler(width).draw(logits[i : i + 1].clone(), [draw(one)])[0] for i, one in enumerate(honest)]
    draws = [*map(draw, honest), draw(hostile, num_generated)]
    *others, own = sample_tokens(sampler(width), logits.clone(), draws)
    assert [one.token for one in others] == alone
    if own.unsampled is None:
        assert own.token in range(width)
    else:
        assert own.unsampled is NOTHING_LEFT


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "changes",
    [
        {"repetition_penalty": 1e-40},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": nan},
        {"logit_bias": {1: 1e39}},
        {"logit_bias": {1: nan}},
        {"logit_bias": ALL_FORBIDDEN},
        {"presence_penalty": -inf},
        {"frequency_penalty": nan},
        {"min_tokens": 9, "stop_token_ids": tuple(range(64))},
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_parameters_that_leave_no_distribution_are_the_requests_own_fault(
    width: int, changes: dict[str, object], temperature: float
):
    logits = torch.ones(2, width)
    sampled = sampler(width).draw(logits, [draw(plain(temperature=temperature, **changes)), draw(plain())])
    assert sampled[0] is NOTHING_LEFT
    assert NOTHING_LEFT.code is FailureCode.SAMPLING
    assert not isinstance(sampled[1], Unsampled)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("wrong", [nan, inf])
@pytest.mark.parametrize("changes", [{}, {"temperature": 0.0}, {"presence_penalty": 1.0}, {"logprobs": 2}])
def test_an_output_that_is_no_number_is_the_engines_fault_and_one_requests_trouble(
    width: int, wrong: float, changes: dict[str, object]
):
    logits = torch.randn(3, width, generator=torch.Generator().manual_seed(1))
    sound = [sampler(width).draw(logits[i : i + 1].clone(), [draw(plain())])[0] for i in (0, 2)]
    logits[1, width - 1] = wrong
    sampled = sample_tokens(sampler(width), logits, [draw(plain()), draw(plain(**changes)), draw(plain())])
    assert [sampled[0].token, sampled[2].token] == sound
    assert sampled[1].unsampled is NOT_FINITE
    assert NOT_FINITE.code is FailureCode.STEP


def test_a_row_that_forbids_some_tokens_is_sound():
    logits = torch.zeros(1, 12)
    logits[0, 1:] = -inf
    assert sampler(12).draw(logits, [draw(plain())]) == [0]
