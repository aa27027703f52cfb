"""Modelled time, and tokens that depend on the request and its KV, not on how it was cut into batches."""

from collections.abc import Sequence

import pytest

from engines.costs.step_cost import StepCost
from engines.scheduling.batch import Batch, Chunk, ChunkResult, Draw
from engines.simulated import HEAD_DIM, SimulatedExecutor, SimulatedService
from kvtransfer.memory import KVMemory
from mesh.wire.requests import Sampling
from mesh.wire.status import DecodeCost, PrefillCost
from mesh.wire.transfers import KVShape

BLOCK_SIZE = 4
COST = StepCost(PrefillCost(0.5, 0.01), DecodeCost(0.25, 0.02))
PROMPT = [5, 3, 9, 9, 1, 0, 7, 2, 8]
VOCABULARY = range(10, 1000)


class Engine:
    """An executor over a pool of its own that runs one request."""

    def __init__(self) -> None:
        self.memory = KVMemory.alone(KVShape(1, 1, HEAD_DIM, BLOCK_SIZE, "float16"), 8)
        self.slept: list[float] = []
        self.executor = SimulatedExecutor(sleep=self.slept.append)
        self.executor.add(SimulatedService("s", COST, self.memory, VOCABULARY))

    def run(self, tokens: Sequence[int], start: int, sampling: Sampling, blocks: Sequence[int] = range(7)) -> int:
        """Compute ``tokens[start:]`` and draw."""
        draw = Draw(sampling, tokens, len(PROMPT), len(tokens))
        token = self.compute(Chunk("r", tokens[start:], start, blocks, draw)).token
        assert token is not None
        return token

    def compute(self, chunk: Chunk) -> ChunkResult:
        return self.executor.execute(Batch("s", [chunk])).chunks[0]

    def generate(self, num_tokens: int, sampling: Sampling) -> list[int]:
        tokens = list(PROMPT)
        start = 0
        for _ in range(num_tokens):
            start, token = len(tokens), self.run(tokens, start, sampling)
            tokens.append(token)
        return tokens[len(PROMPT) :]


@pytest.fixture
def sampling() -> Sampling:
    return Sampling(max_tokens=8, seed=3)


def test_a_step_waits_the_modelled_time(sampling: Sampling):
    engine = Engine()
    result = engine.executor.execute(
        Batch("s", [Chunk("r", PROMPT, 0, range(3), Draw(sampling, PROMPT, len(PROMPT), len(PROMPT)))])
    )
    assert result.elapsed_s == pytest.approx(0.5 + 0.09)
    assert 0 < engine.slept[0] <= result.elapsed_s


def test_tokens_depend_on_prompt_and_seed_alone(sampling: Sampling):
    once, again = Engine().generate(6, sampling), Engine().generate(6, sampling)
    assert once == again
    assert once != Engine().generate(6, Sampling(max_tokens=8, seed=4))
    assert set(once) <= set(VOCABULARY)
    assert len(set(once)) > 1


@pytest.mark.parametrize("cut", range(1, len(PROMPT)))
def test_chunks_and_blocks_make_no_difference(cut: int, sampling: Sampling):
    engine, blocks = Engine(), [6, 2, 5]
    assert engine.compute(Chunk("r", PROMPT[:cut], 0, blocks)).token is None
    assert engine.run(PROMPT, cut, sampling, blocks) == Engine().run(PROMPT, 0, sampling)


def test_moved_blocks_continue_and_wrong_bytes_show(sampling: Sampling):
    source, target = Engine(), Engine()
    first = source.run(PROMPT, 0, sampling)
    expected = source.run([*PROMPT, first], len(PROMPT), sampling)
    target.memory.array[4:7] = source.memory.array[0:3]
    assert target.run([*PROMPT, first], len(PROMPT), sampling, [4, 5, 6]) == expected
    target.memory[6][:3] ^= 1
    assert target.run([*PROMPT, first], len(PROMPT), sampling, [4, 5, 6]) != expected


def test_log_probabilities_come_where_asked():
    sampling = Sampling(max_tokens=1, seed=0, logprobs=2)
    result = Engine().compute(
        Chunk("r", PROMPT, 0, range(3), Draw(sampling, PROMPT, len(PROMPT), len(PROMPT)), prompt_logprobs=0)
    )
    assert result.logprobs is not None
    assert result.logprobs.token == result.token
    assert result.prompt_logprobs is not None
    assert result.prompt_logprobs[0] is None
    assert [given.token for given in result.prompt_logprobs[1:] if given] == PROMPT[1:]
