"""The sampler against plain definitions, one token at a time, in Python."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from engines.grammars.masks import Masks
from engines.grammars.process import Vocabulary
from engines.scheduling.batch import Draw
from engines.torch_engine.sampling.logprobs import of_tokens
from engines.torch_engine.sampling.randomness import uniform
from engines.torch_engine.sampling.sampler import Sampler, likeliest
from mesh.wire.requests import Sampling

VOCABULARY = 12
EOS = 2
BYTE_LLAMA = Path(__file__).parents[4] / "deploy/models/byte-llama"
NO_GRAMMARS = Masks(Vocabulary(Path("nowhere"), VOCABULARY, (EOS,)))
PINNED = [0.6524484863739417, 0.3681895156514656, 0.7012121095212933, 0.1694617695384295]


def draw_one(logits, sampling, prompt=(), generated=()):
    draw = Draw(sampling, [*prompt, *generated], len(prompt), len(prompt) + len(generated))
    [token] = Sampler([EOS], NO_GRAMMARS).draw(torch.tensor([logits]), [draw])
    return token


def sampling(**changes):
    return Sampling(**({"max_tokens": 8, "seed": 1, "temperature": 0.0} | changes))


def plain_weights(logits, sampling, prompt, generated):
    """The distribution by definition: weights relative to the likeliest token, 0 for what is cut."""
    logits = list(logits)
    for token, bias in sampling.logit_bias.items():
        logits[token] += bias
    for token in {*prompt, *generated}:
        positive = logits[token] > 0
        logits[token] *= 1 / sampling.repetition_penalty if positive else sampling.repetition_penalty
    for token, count in Counter(generated).items():
        logits[token] -= sampling.presence_penalty + sampling.frequency_penalty * count
    if len(generated) < sampling.min_tokens:
        for token in (EOS, *sampling.stop_token_ids):
            logits[token] = -math.inf
    weights = [math.exp((logit - max(logits)) / sampling.temperature) for logit in logits]
    ranked = sorted(weights)
    assume(all(high - low > 1e-4 for low, high in pairwise(ranked) if high > 0))
    assume(all(abs(weight - sampling.min_p) > 1e-4 for weight in weights))
    weights = [weight if weight >= sampling.min_p else 0.0 for weight in weights]
    if sampling.top_k:
        least = sorted(weights)[-min(sampling.top_k, len(weights))]
        weights = [weight if weight >= least else 0.0 for weight in weights]
    wanted, total, least = sampling.top_p * sum(weights), 0.0, 0.0
    for weight in sorted(weights, reverse=True):
        assume(abs(total - wanted) > 1e-4)
        if total < wanted:
            least = weight
        total += weight
    return [weight if sampling.top_p == 1 or weight >= least else 0.0 for weight in weights]


histories = st.lists(st.integers(0, VOCABULARY - 1), max_size=6)
samplings = st.builds(
    Sampling,
    max_tokens=st.just(8),
    seed=st.integers(0, 2**63 - 1),
    temperature=st.floats(0.2, 3),
    top_p=st.sampled_from([1.0, 0.95, 0.7, 0.3]),
    top_k=st.integers(0, VOCABULARY + 3),
    min_p=st.sampled_from([0.0, 0.05, 0.4]),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    repetition_penalty=st.floats(0.5, 2),
    logit_bias=st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-5, 5), max_size=3),
    stop_token_ids=st.sampled_from([(), (4, 5)]),
    min_tokens=st.integers(0, 4),
)
rows = st.permutations([0.31 * i - 2 for i in range(VOCABULARY)])


@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
@given(rows, samplings, histories, histories)
def test_the_drawn_token_inverts_the_distribution_function(logits, sampling, prompt, generated):
    weights = plain_weights(logits, sampling, prompt, generated)
    point = uniform(sampling.seed, len(prompt) + len(generated)) * sum(weights)
    ends = [sum(weights[: token + 1]) for token in range(VOCABULARY)]
    assume(all(abs(end - point) > 1e-4 for end in ends))
    assert draw_one(logits, sampling, prompt, generated) == next(i for i, end in enumerate(ends) if end > point)


@pytest.mark.parametrize(
    ("changes", "generated", "expected"),
    [
        ({}, (), 1),
        ({"logit_bias": {3: 9.0}}, (), 3),
        ({"presence_penalty": 1.0}, (1,), 2),
        ({"frequency_penalty": 0.5}, (1, 1), 2),
        ({"repetition_penalty": 2.0}, (1,), 2),
        ({"min_tokens": 2, "logit_bias": {EOS: 9.0}}, (1,), 1),
        ({"min_tokens": 2, "logit_bias": {EOS: 9.0}}, (1, 1), EOS),
        ({"min_tokens": 1, "stop_token_ids": (1,)}, (), 0),
        ({"min_tokens": 1, "ignore_eos": True, "logit_bias": {EOS: 9.0}}, (), EOS),
    ],
)
def test_greedy_takes_the_likeliest_after_bias_and_penalties(changes, generated, expected):
    assert draw_one([0.9, 2.0, 1.5, 0.0], sampling(**changes), (), generated) == expected


@pytest.mark.parametrize("vocabulary", [12, 31, 48, 259, 1024, 49152])
def test_the_likeliest_is_the_first_of_the_largest(vocabulary):
    generator = torch.Generator().manual_seed(vocabulary)
    padded = torch.randint(-3, 3, (8, vocabulary + 5), generator=generator).float()  # most rows have ties
    padded[3] = float("-inf")
    padded[4:, vocabulary - 1] = 7.0
    logits = padded[:, :vocabulary]
    assert likeliest(logits).tolist() == [row.index(max(row)) for row in logits.tolist()]


def test_a_token_does_not_depend_on_the_batch():
    torch.manual_seed(0)
    logits = torch.randn(40, 5000)
    kinds = [
        {},
        {"top_p": 0.8},
        {"top_k": 50, "min_p": 0.01},
        {"temperature": 0.0},
        {"top_p": 0.999, "temperature": 9.0},
    ]
    draws = [Draw(sampling(**({"temperature": 1.0, "seed": i} | kinds[i % 5])), (1,) * i, 0, i) for i in range(40)]
    sampler = Sampler([EOS], NO_GRAMMARS)
    together = sampler.draw(logits.clone(), draws)
    alone = [sampler.draw(logits[i : i + 1].clone(), draws[i : i + 1])[0] for i in range(40)]
    assert together == alone


def test_the_same_seed_and_position_draw_the_same_and_others_do_not():
    logits = [0.0] * 1000
    tokens = [
        draw_one(logits, sampling(temperature=1.0, seed=seed), (), (5,) * n) for seed in (1, 2) for n in range(50)
    ]
    again = [draw_one(logits, sampling(temperature=1.0, seed=seed), (), (5,) * n) for seed in (1, 2) for n in range(50)]
    assert tokens == again
    assert len(set(tokens)) > 85


def test_the_nucleus_may_be_wider_than_the_candidates_looked_at_first():
    weights = torch.arange(3000, 0, -1, dtype=torch.float64)
    logits = weights.log().float()
    sampled = Counter()
    for seed in range(400):
        sampled[draw_one(logits.tolist(), sampling(temperature=1.0, top_p=0.9, seed=seed))] += 1
    kept = int((weights.cumsum(0) - weights < 0.9 * weights.sum()).sum())
    assert 1024 < max(sampled) < kept


def test_uniform_numbers_are_spread_evenly():
    numbers = [uniform(seed, position) for seed in range(50) for position in range(200)]
    tenths = Counter(int(number * 10) for number in numbers)
    assert set(tenths) == set(range(10))
    assert all(abs(count - 1000) < 150 for count in tenths.values())
    assert len(set(numbers)) == len(numbers)


def test_uniform_numbers_never_change():
    """A continuation on another version must draw the same tokens."""
    assert [uniform(0, 0), uniform(1, 0), uniform(0, 1), uniform(2**63, 10**6)] == PINNED


def test_logprobs_are_of_the_model_and_likeliest_first():
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]])
    first, second = of_tokens(logits, [0, 1], [2, 0])
    expected = torch.log_softmax(logits, dim=-1)
    assert (first.token, first.logprob) == (0, pytest.approx(expected[0, 0].item()))
    assert [token for token, _ in first.top] == [3, 2]
    assert [value for _, value in first.top] == pytest.approx(expected[0, [3, 2]].tolist())
    assert (second.token, second.top) == (1, [])


def test_a_grammar_decides_what_may_come_and_counts_more_than_other_wishes():
    """The likeliest of what it allows; where bias or a length leave nothing of that, what it allows."""
    number = LLMatcher.grammar_from_regex("[1-9][0-9]")
    end, digits = 257, range(48, 58)
    grammars = Masks(Vocabulary(BYTE_LLAMA, 258, (end,)))
    logits = torch.zeros(1, 258)
    logits[0, ord("x")], logits[0, ord("0")], logits[0, ord("7")] = 9.0, 8.0, 7.0

    def sampled(generated, **changes):
        one = sampling(grammar=number, **changes)
        [token] = Sampler([end], grammars).draw(logits.clone(), [Draw(one, generated, 0, len(generated), "r")])
        return token

    assert sampled([]) == ord("7")
    assert sampled([ord("4")]) == ord("0")
    assert sampled([ord("4"), ord("0")], min_tokens=5) == end
    forbidden = dict.fromkeys(digits, -100.0)
    assert sampled([], logit_bias=forbidden) in digits
    assert {sampled([ord("4")], temperature=9.0, seed=seed) for seed in range(200)} == set(digits)
