"""`StepExecutor` of the torch engine: batches in, tokens out, for one or several models."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from engines.adapters.folder import AdapterFolder
from engines.grammars.masks import BRIEFLY_S
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.tasks import check_task, pooling_of
from engines.scheduling.batch import Batch, Chunk, ChunkResult, StepResult
from engines.speculation.drafting import write_drafts
from engines.speculation.verification import compute_verified
from engines.torch_engine.acceleration import Acceleration, cpu_acceleration, cuda_acceleration
from engines.torch_engine.adapters.adapted import Adapters
from engines.torch_engine.decoder import Decoder
from engines.torch_engine.graphs.decode_graphs import DecodeGraphs
from engines.torch_engine.kv_pool import KVPool
from engines.torch_engine.layers.paged_attention import PagedAttention
from engines.torch_engine.pooled.models import PooledDecoder, PooledEncoder
from engines.torch_engine.sampling.logprobs import PromptLogprobs
from engines.torch_engine.sampling.rows import SampledToken, sample_tokens
from engines.torch_engine.sampling.sampler import Sampler
from engines.torch_engine.shape import kv_shape
from engines.torch_engine.tensors import ReadTensor, read_tensor
from engines.torch_engine.threads import ThreadSetter
from mesh.topology.schema import Task
from mesh.wire.requests import TokenLogprobs
from mesh.wire.transfers import KVShape


@dataclass(frozen=True, slots=True)
class TorchService:
    """A model to serve. ``memory`` is writable bytes of whole KV pages, or a uint8 tensor of them on the device.

    Several services may have the same memory: each uses the blocks that it is given. ``read`` reads the model's
    tensors. ``kv_dtype``: of `kv_shape`.
    """

    name: str
    folder: Path
    config: ModelConfig
    dtype: str
    block_size: int
    memory: memoryview | bytearray | Tensor
    page_bytes: int
    task: Task = Task.GENERATE
    read: ReadTensor = read_tensor
    kv_dtype: str | None = None


class TorchExecutor:
    """A model is computed in one thread at a time; others may come and go meanwhile."""

    def __init__(
        self,
        services: Iterable[TorchService],
        device: str = "cpu",
        threads: int = 1,
        acceleration: Acceleration | None = None,
    ) -> None:
        self._device = torch.device(device)
        self.threads = ThreadSetter(threads)
        if acceleration is None:
            acceleration = cuda_acceleration(self._device) if self._device.type == "cuda" else cpu_acceleration()
        self._acceleration = acceleration
        self._models: dict[str, ExecutableModel] = {}
        for service in services:
            self.add(service)

    def add(self, service: TorchService) -> None:
        """Load a model."""
        torch.set_num_threads(self.threads.own)  # of the calling thread
        with torch.inference_mode(), self._on_device():
            self._models[service.name] = _model(service, self._device, self._acceleration, self.threads)

    def move(self, service: TorchService) -> None:
        """Let a loaded model keep its KV in the memory that is named now; what it kept is lost."""
        self._models[service.name].use(_pool(service, self._device))

    def remove(self, service: str) -> None:
        """Forget a model. On a GPU its memory is free for all afterwards, as others ask the device what it has."""
        del self._models[service]
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def add_adapter(self, service: str, key: str, folder: AdapterFolder) -> None:
        """Load a LoRA adapter for a model that generates."""
        model = self._models[service]
        if not isinstance(model, _Model):
            raise ModelError(f"{service} makes no tokens, and has no adapters")
        with torch.inference_mode(), self._on_device():
            model.adapters.load(key, folder)

    def remove_adapter(self, service: str, key: str) -> None:
        model = self._models[service]
        if isinstance(model, _Model):
            model.adapters.drop(key)

    def shape(self, service: str) -> KVShape:
        return self._models[service].pool.shape

    def execute(self, batch: Batch) -> StepResult:
        started = time.perf_counter()
        self.threads.begin_step(sum([len(chunk.tokens) for chunk in batch.chunks]))
        with torch.inference_mode(), self._on_device():
            drafted = write_drafts(batch.chunks, lambda service: self._models[service].step, time.perf_counter)
            model = self._models[batch.service]
            results = compute_verified(drafted.chunks, model.step)
            if batch.num_forced and isinstance(model, _Model):
                results = model.forced(drafted.chunks, results, batch.num_forced, time.perf_counter() - started)
            if self._device.type == "cuda":  # what is told as computed is there, for every stream and process
                torch.cuda.current_stream().synchronize()
        return StepResult(results, time.perf_counter() - started, self.threads.has_extra, drafted.steps_s)

    def recover(self, *, frees_memory: bool) -> None:
        """Recover as `StepExecutor` says. A device that failed in a kernel says so when it is waited for, whoever
        launched it.
        """
        if self._device.type != "cuda":
            return
        torch.cuda.synchronize(self._device)
        if frees_memory:
            for model in self._models.values():
                model.forget_graphs()
            torch.cuda.empty_cache()

    def _on_device(self) -> AbstractContextManager[None]:
        """CUDA has a current device by thread, and so have streams and graphs."""
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()


class ExecutableModel(Protocol):
    """A loaded service, with the pool that its KV is in."""

    pool: KVPool

    def use(self, pool: KVPool) -> None:
        """Keep KV there from now on."""

    def forget_graphs(self) -> None:
        """They are captured anew when they are wanted."""

    def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]: ...


def _model(
    service: TorchService, device: torch.device, acceleration: Acceleration, threads: ThreadSetter
) -> ExecutableModel:
    """Load the service's model for its task."""
    folder, config, pool = service.folder, service.config, _pool(service, device)
    check_task(folder, config, service.task)
    if service.task is Task.GENERATE:
        return _Model(service, device, acceleration, threads)
    pooling = pooling_of(folder, config) if service.task is Task.EMBED else None
    if pooling is None or config.encoder is not None:
        return PooledEncoder(folder, config, service.dtype, pool, pooling, service.read)
    paged = _paged(config, pool, acceleration)
    return PooledDecoder(folder, config, service.dtype, pool, pooling, paged, service.read)


def _paged(config: ModelConfig, pool: KVPool, acceleration: Acceleration) -> PagedAttention | None:
    is_capped = config.attention_softcap is not None  # no kernel for GPUs has that
    return None if is_capped else acceleration.paged(pool.shape)


class _Model:
    """A service that generates."""

    def __init__(
        self, service: TorchService, device: torch.device, acceleration: Acceleration, threads: ThreadSetter
    ) -> None:
        self.pool = _pool(service, device)
        self._acceleration = acceleration
        self._threads = threads
        self._paged = _paged(service.config, self.pool, acceleration)
        self._decoder = Decoder(
            service.folder,
            service.config,
            service.dtype,
            self.pool,
            self._paged,
            before_layer=threads.set,
            read=service.read,
        )
        self._graphs = self._new_graphs()
        self._sampler = Sampler.of(service.folder, service.config, BRIEFLY_S)
        self._prompts = PromptLogprobs(self._decoder.logits)
        self._device = device

    @property
    def adapters(self) -> Adapters:
        return self._decoder.adapters

    def use(self, pool: KVPool) -> None:
        self.pool = pool
        self._decoder.use(pool)
        self._graphs = self._new_graphs()

    def forget_graphs(self) -> None:
        """They are captured anew when they are wanted."""
        self._graphs = self._new_graphs()

    def _new_graphs(self) -> DecodeGraphs | None:
        """Those of a pool: they have its addresses."""
        decoder, acceleration = self._decoder, self._acceleration
        if decoder.config.experts is not None:  # the router's choice is not in a graph
            return None
        by_kernels = acceleration.by_kernels
        if by_kernels and not decoder.attends_in_place:
            return None
        return DecodeGraphs(decoder, self.pool, self._paged, acceleration.capture, by_kernels=by_kernels)

    def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        if not chunks:
            return []
        self._sampler.expect([chunk.draw for chunk in chunks if chunk.draw is not None])
        logits = None
        if self._graphs is not None and not self._threads.has_extra:  # which may go from layer to layer
            logits = self._graphs.logits(chunks)
        if logits is not None:
            draws = [chunk.draw for chunk in chunks if chunk.draw is not None]
            return [_result(sampled, None) for sampled in sample_tokens(self._sampler, logits, draws)]
        layout = self._decoder.plan(chunks)
        ordered = [chunks[i] for i in layout.order]
        rows, spans = _needed_rows(ordered)
        keys, lengths = [chunk.adapter for chunk in ordered], [len(chunk.tokens) for chunk in ordered]
        with self.adapters.of_rows(keys, lengths, rows):
            hidden = self._decoder.forward(ordered, layout, torch.tensor(rows, dtype=torch.long, device=self._device))
        sampled = self._draw(hidden, ordered, spans)
        results: dict[int, ChunkResult] = {}
        for i, chunk, span in zip(layout.order, ordered, spans, strict=True):
            own = next(sampled) if chunk.draw is not None else SampledToken(None)
            prompt = None if chunk.prompt_logprobs is None else self._prompts.compute(chunk, hidden[span])
            results[i] = _result(own, prompt)
        return [results[i] for i in range(len(chunks))]

    def forced(
        self, chunks: Sequence[Chunk], results: Sequence[ChunkResult], most: int, step_s: float
    ) -> Sequence[ChunkResult]:
        """Return the results with what grammars force next (`Sampler.forced`)."""
        return self._sampler.forced(chunks, results, most, step_s)

    def _draw(self, hidden: Tensor, chunks: Sequence[Chunk], spans: Sequence[slice]) -> Iterator[SampledToken]:
        """Token and log-probabilities of every chunk that draws, in order."""
        last = [span.stop - 1 for chunk, span in zip(chunks, spans, strict=True) if chunk.draw is not None]
        if not last:
            return iter(())
        draws = [chunk.draw for chunk in chunks if chunk.draw is not None]
        logits = self._decoder.logits(hidden if len(last) == len(hidden) else hidden[last])
        return iter(sample_tokens(self._sampler, logits, draws))


def _result(sampled: SampledToken, prompt: list[TokenLogprobs | None] | None) -> ChunkResult:
    return ChunkResult(sampled.token, sampled.logprobs, prompt, sampled.unsampled)


def _pool(service: TorchService, device: torch.device) -> KVPool:
    memory = service.memory
    if isinstance(memory, Tensor):
        tensor = memory
    else:
        tensor = torch.frombuffer(memory, dtype=torch.uint8) if len(memory) else torch.empty(0, dtype=torch.uint8)
    if tensor.device.type != device.type:
        raise ValueError(f"KV memory of service {service.name} lies on {tensor.device}: {device} memory would be right")
    shape = kv_shape(service.config, service.dtype, service.block_size, service.kv_dtype)
    return KVPool(shape, tensor, service.page_bytes)


def _needed_rows(chunks: Sequence[Chunk]) -> tuple[list[int], list[slice]]:
    """Rows of the batch whose hidden state is wanted, and where each chunk's are among them."""
    rows: list[int] = []
    spans: list[slice] = []
    end = 0
    for chunk in chunks:
        first, end = end, end + len(chunk.tokens)
        begin = len(rows)
        if chunk.prompt_logprobs is not None:
            rows.extend(range(first, end))
        elif chunk.draw is not None:
            rows.append(end - 1)
        spans.append(slice(begin, len(rows)))
    return rows, spans
