"""`StepExecutor` over vLLM: batches in, tokens out."""

import time
from collections.abc import Callable, Mapping, Sequence
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


class VllmService:
    """A service with the runner that has its model. ``place_of``: see `StepPlanner`."""

    def __init__(
        self, name: str, shape: KVShape, runner: ModelRunner, place_of: Callable[[int], int] | None = None
    ) -> None:
        self.name = name
        self.shape = shape
        self._runner = runner
        self._planner = StepPlanner(shape.block_size, place_of)

    def compute(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        step = self._planner.plan(chunks)
        try:
            output = self._runner.compute(step)
        except Exception:
            self._planner.failed()
            raise
        self._planner.drew(chunks, output.tokens)
        return [_result(chunk, output) for chunk in chunks]


class VllmExecutor:
    """Services of one process, each with vLLM's workers of its own; one of them computes at a time."""

    def __init__(self) -> None:
        self._services: dict[str, VllmService] = {}

    def add(self, service: VllmService) -> None:
        self._services[service.name] = service

    def shape(self, service: str) -> KVShape:
        return self._services[service].shape

    def execute(self, batch: Batch) -> StepResult:
        started = time.perf_counter()
        results = self._services[batch.service].compute(batch.chunks) if batch.chunks else []
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
