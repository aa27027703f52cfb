"""`StepExecutor` over vLLM: batches in, tokens out, for one model."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engines.scheduling.batch import Batch, Chunk, ChunkResult, StepResult, Unsampled
from engines.vllm_engine.steps import StepPlanner, VllmStep
from mesh.wire.requests import TokenLogprobs
from mesh.wire.transfers import KVShape

PromptLogprobs = Sequence[TokenLogprobs | None]


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The outcome of a step by request: the sampled token, and log-probabilities where they were asked for.

    ``prompts`` has one entry a token of the chunk; None where the predecessor is not known.
    """

    tokens: Mapping[str, int]
    logprobs: Mapping[str, TokenLogprobs]
    prompts: Mapping[str, PromptLogprobs]
    unsampled: Mapping[str, Unsampled] = field(default_factory=dict)  # why there is no token where one was wanted


class ModelRunner(Protocol):
    """vLLM's workers. Whatever a step leaves behind when it raises, the next one is told to forget."""

    def compute(self, step: VllmStep) -> StepOutput: ...


class VllmExecutor:
    def __init__(self, service: str, shape: KVShape, runner: ModelRunner) -> None:
        self._service = service
        self._shape = shape
        self._runner = runner
        self._planner = StepPlanner(shape.block_size)

    def shape(self, service: str) -> KVShape:
        if service != self._service:
            raise KeyError(service)
        return self._shape

    def execute(self, batch: Batch) -> StepResult:
        started = time.perf_counter()
        if not batch.chunks:
            return StepResult([], time.perf_counter() - started)
        step = self._planner.plan(batch.chunks)
        try:
            output = self._runner.compute(step)
        except Exception:
            self._planner.failed()
            raise
        self._planner.drew(batch.chunks, output.tokens)
        results = [_result(chunk, output) for chunk in batch.chunks]
        return StepResult(results, time.perf_counter() - started)

    def recover(self, *, frees_memory: bool) -> None:
        """vLLM's workers have the device: if it is lost, every step of theirs says so."""


def _result(chunk: Chunk, output: StepOutput) -> ChunkResult:
    name = chunk.request
    if chunk.draw is None:
        return ChunkResult(prompt_logprobs=output.prompts.get(name))
    if name in output.unsampled:
        return ChunkResult(prompt_logprobs=output.prompts.get(name), unsampled=output.unsampled[name])
    return ChunkResult(output.tokens[name], output.logprobs.get(name), output.prompts.get(name))
