"""A step that checks drafts samples what steps without drafts sample, and keeps the KV that they keep."""

import random
from collections.abc import Sequence

import msgspec
import pytest

from engines.scheduling.batch import Chunk, ChunkResult
from engines.speculation.verification import compute_verified
from mesh.wire.requests import Sampling
from tests.engines.contract.computers import Desk, simulated_computer, torch_computer

GREEDY = Sampling(max_tokens=64, seed=1, temperature=0.0)
SAMPLED = Sampling(max_tokens=64, seed=11, temperature=0.9, top_p=0.95)
PENALISED = Sampling(max_tokens=64, seed=1, temperature=0.0, repetition_penalty=1.2, frequency_penalty=0.4)
BIASED = Sampling(max_tokens=64, seed=4, temperature=0.7, presence_penalty=0.9, logit_bias={32: 3.0}, min_tokens=40)
ANSWER = 24


@pytest.fixture(scope="module", params=["torch", "simulated"])
def computer(request):
    made = {"torch": torch_computer, "simulated": simulated_computer}[request.param]()
    yield made
    made.close()


def prompt() -> list[int]:
    return [*b"the cat sat on the mat, the cat sat on the mat, the cat sat on the"]


def drafted(tokens: Sequence[int], right: Sequence[int], dice: random.Random) -> list[int]:
    """What follows, of which some may be wrong."""
    drafts = list(right[len(tokens) : len(tokens) + dice.randint(0, 6)])
    return [token if dice.random() < 0.8 else (token + 1) % 256 for token in drafts]


def generate_with_drafts(desk: Desk, sampling: Sampling, right: Sequence[int]) -> tuple[list[int], list[ChunkResult]]:
    """All tokens, and the result of each. Another request decodes beside it without drafts."""
    runner, dice, prompted = desk.runner(), random.Random(3), prompt()
    tokens, other = list(prompted), [1, 2, 3]
    results = runner.execute(runner.chunk("r", tokens, 0, sampling), runner.chunk("other", other, 0, sampling))
    found = [results[0]]
    tokens.append(results[0].token or 0)
    other.append(results[1].token or 0)
    while len(tokens) < len(prompted) + ANSWER:
        drafts = drafted(tokens, right, dice)
        chunk = runner.chunk("r", tokens, len(tokens) - 1, sampling, len(prompted))
        runner.chunk("r", [*tokens, *drafts], len(tokens) - 1, None, len(prompted))  # blocks for them
        beside = runner.chunk("other", other, len(other) - 1, sampling, 3)
        results = runner.execute(msgspec.structs.replace(chunk, drafts=drafts), beside)
        found += [results[0], *results[0].further]
        tokens += [one.token or 0 for one in (results[0], *results[0].further)]
        other.append(results[1].token or 0)
    return tokens, found


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, PENALISED, BIASED])
@pytest.mark.parametrize("logprobs", [None, 2])
def test_tokens_and_their_logprobs_are_those_without_drafts(computer, sampling: Sampling, logprobs: int | None):
    desk, sampling = Desk(computer, 5), msgspec.structs.replace(sampling, logprobs=logprobs)
    plain, alone = desk.runner(), list[ChunkResult]()
    right = prompt()
    while len(right) < len(prompt()) + ANSWER + 8:
        start = 0 if not alone else len(right) - 1
        alone += plain.execute(plain.chunk("r", right, start, sampling, len(prompt())))
        right.append(alone[-1].token or 0)
    tokens, found = generate_with_drafts(desk, sampling, right)
    assert tokens == right[: len(tokens)]
    if logprobs is not None:
        for one, other in zip(found, alone, strict=False):
            assert one.logprobs is not None
            assert other.logprobs is not None
            assert one.logprobs.logprob == pytest.approx(other.logprobs.logprob, abs=1e-4)
            assert [token for token, _ in one.logprobs.top] == [token for token, _ in other.logprobs.top]


def test_what_follows_a_wrong_draft_does_not_count():
    chunk = Chunk("r", [5], 0, [0], drafts=[6, 9, 8])
    with_draw = msgspec.structs.replace(chunk, draw=draw_after([5]))
    [result] = compute_verified([with_draw], lambda rows: [ChunkResult(row.tokens[0] + 1) for row in rows])
    assert [result.token, *[one.token for one in result.further]] == [6, 7]


def test_a_batch_without_drafts_is_computed_as_it_is():
    chunks = [Chunk("r", [5], 0, [0])]
    seen: list[Sequence[Chunk]] = []

    def compute(rows: Sequence[Chunk]) -> Sequence[ChunkResult]:
        seen.append(rows)
        return [ChunkResult()]

    assert compute_verified(chunks, compute) == [ChunkResult()]
    assert seen[0] is chunks


def draw_after(tokens: list[int]):
    from engines.scheduling.batch import Draw

    return Draw(GREEDY, tokens, 0, len(tokens))
