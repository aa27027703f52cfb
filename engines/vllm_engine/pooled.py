"""`StepExecutor` over vLLM's pooling runner: whole prompts in, vectors or scores out, for one model.

Nothing follows a prompt that is pooled, and nobody else reads its KV: so vLLM's own engine has the KV, and computes
each batch to its end. Which prompts a batch has is decided here, as for all engines.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.scheduling.batch import Batch, Chunk, ChunkResult, StepResult
from engines.torch_engine.pooled.pooling import to_bytes
from engines.torch_engine.sampling.sampler import NOT_FINITE
from engines.vllm_engine.runner import ENVIRONMENT
from mesh.topology.schema import Task
from mesh.wire.requests import POOLED_TOKEN
from mesh.wire.transfers import KVShape

TASKS = {Task.EMBED: "embed", Task.SCORE: "classify"}  # vLLM's words


@dataclass(frozen=True, slots=True)
class PoolerSettings:
    """What vLLM is started with. ``most_tokens`` and ``most_requests`` are of a batch; ``options`` are vLLM's own.

    ``has_segments``: the model tells the texts of a pair apart. ``generates``: it was made to, and its hidden states
    are pooled.
    """

    folder: str
    task: Task
    dtype: str
    max_context: int
    most_tokens: int
    most_requests: int
    kv_memory_bytes: int
    generates: bool
    has_segments: bool
    options: Mapping[str, object]
    gpu_share: float | None = None


class VllmPooler:
    """A model that vLLM has loaded. Used from the thread that makes it."""

    def __init__(self, service: str, shape: KVShape, settings: PoolerSettings) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._service = service
        self._shape = shape
        self._task = TASKS[settings.task]
        self._has_segments = settings.has_segments and settings.task is Task.SCORE
        self._engine = _engine(settings)
        self._num_asked = 0

    def shape(self, service: str) -> KVShape:
        if service != self._service:
            raise KeyError(service)
        return self._shape

    def execute(self, batch: Batch) -> StepResult:
        started = time.perf_counter()
        names = [self._ask(chunk) for chunk in batch.chunks]
        try:
            found = self._answers()
        except Exception:
            self._engine.abort_request(names)
            raise
        results = [_result(found[name]) for name in names]
        return StepResult(results, time.perf_counter() - started)

    def recover(self, *, frees_memory: bool) -> None:
        """vLLM's workers have the device: if it is lost, every step of theirs says so."""

    def _ask(self, chunk: Chunk) -> str:
        """Give a prompt to vLLM, under a name that no other has had."""
        from vllm import PoolingParams

        self._num_asked += 1
        name = f"{chunk.request}-{self._num_asked}"
        parameters = PoolingParams(task=self._task, extra_kwargs=self._pair(chunk))
        self._engine.add_request(name, {"type": "token", "prompt_token_ids": list(chunk.tokens)}, parameters)
        return name

    def _pair(self, chunk: Chunk) -> dict[str, Any] | None:
        pooling = None if chunk.draw is None else chunk.draw.pooling
        is_pair = self._has_segments and pooling is not None and pooling.first_tokens > 0
        return {"compressed_token_type_ids": pooling.first_tokens} if is_pair and pooling else None

    def _answers(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._engine.has_unfinished_requests():
            found |= {output.request_id: output.outputs.data for output in self._engine.step() if output.finished}
        return found


def _result(vector: Any) -> ChunkResult:
    if not bool(vector.float().sum().isfinite()):
        return ChunkResult(unsampled=NOT_FINITE)
    [made] = to_bytes(vector.reshape(1, -1))
    return ChunkResult(POOLED_TOKEN, vector=made)


def _engine(settings: PoolerSettings) -> Any:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    arguments: dict[str, Any] = {
        "model": settings.folder,
        "runner": "pooling",
        "skip_tokenizer_init": True,
        "dtype": settings.dtype,
        "max_model_len": settings.max_context,
        "max_num_seqs": settings.most_requests,
        "max_num_batched_tokens": settings.most_tokens,
        "kv_cache_memory_bytes": settings.kv_memory_bytes,
        "enable_prefix_caching": False,
        "disable_log_stats": True,
    }
    if settings.generates:
        arguments["convert"] = TASKS[settings.task]
    if settings.gpu_share is not None:
        arguments["gpu_memory_utilization"] = settings.gpu_share
    return LLMEngine.from_engine_args(EngineArgs(**arguments | dict(settings.options)))
