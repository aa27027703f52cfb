"""`StepExecutor` over transformers' ``generate``: padded batches in, tokens out, for one model."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from engines.scheduling.batch import Batch, Chunk, ChunkResult, Draw, Rows, StepResult
from engines.torch_engine.sampling.logprobs import PromptLogprobs
from engines.torch_engine.sampling.rows import SampledToken
from engines.torch_engine.sampling.sampler import Sampler
from engines.transformers_engine.generation import BatchGeneration, ComputeThread
from mesh.wire.requests import TokenLogprobs
from mesh.wire.transfers import KVShape


def load_model(folder: Path, dtype: str, device: str) -> PreTrainedModel:
    """Load a model as transformers does, without its defaults for sampling."""
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), local_files_only=True
    )
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    model.to(torch.device(device))  # type: ignore[arg-type]
    model.train(False)
    return model


class TransformersExecutor:
    """A call of ``generate`` is held between batches. A batch that goes on with rows of it is its next step; any other
    begins a call of its own with all tokens of its requests, so that a batch that failed, or was cut in two, goes on.

    Raise `ValueError` for what no padded batch has: parts of prompts.
    """

    def __init__(self, service: str, model: PreTrainedModel, shape: KVShape, sampler: Sampler, threads: int) -> None:
        torch.set_num_threads(threads)  # of the calling thread, for log-probabilities of prompts
        self._service = service
        self._model = model
        self._shape = shape
        self._sampler = sampler
        self._prompts = PromptLogprobs(self._logits)
        self._caller = ComputeThread(threads)
        self._held: _Held | None = None

    def shape(self, service: str) -> KVShape:
        """The shape of blocks that count memory and hold nothing: transformers keeps KV in a cache of its own."""
        if service != self._service:
            raise KeyError(service)
        return self._shape

    def execute(self, batch: Batch) -> StepResult:
        started = time.perf_counter()
        sampled = self._draw(batch.chunks, batch.rows) if batch.chunks else {}
        results = [self._result(chunk, sampled[chunk.request]) for chunk in batch.chunks]
        return StepResult(results, time.perf_counter() - started)

    def recover(self, *, frees_memory: bool) -> None:
        """Recover as `StepExecutor` says. The cache of a call that is held goes with it."""
        if self._held is not None:
            self._held.stop()
            self._held = None
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)
            torch.cuda.empty_cache()

    def _result(self, chunk: Chunk, sampled: SampledToken) -> ChunkResult:
        return ChunkResult(sampled.token, sampled.logprobs, self._prompt_logprobs(chunk), sampled.unsampled)

    def _draw(self, chunks: Sequence[Chunk], rows: Rows | None) -> Mapping[str, SampledToken]:
        draws = {chunk.request: _draw_of(chunk) for chunk in chunks}
        if self._held is None or not self._held.goes_on_with(chunks):
            if self._held is not None:
                self._held.stop()
            self._held = self._begin(draws, rows)
        return self._held.step(draws)

    def _begin(self, draws: Mapping[str, Draw], rows: Rows | None) -> "_Held":
        most = max(draw.sampling.max_tokens - draw.num_generated for draw in draws.values())
        most = max(1, most) if rows is None else rows.num_left
        prompts = [draw.tokens[: draw.position] for draw in draws.values()]
        return _Held(BatchGeneration(self._model, self._sampler, prompts, most, self._caller), list(draws))

    def _prompt_logprobs(self, chunk: Chunk) -> list[TokenLogprobs | None] | None:
        """By a forward pass of their own: ``generate`` computes the logits of last tokens only."""
        if chunk.prompt_logprobs is None:
            return None
        ids = torch.tensor([chunk.tokens], device=self._model.device)
        with torch.inference_mode():
            hidden = self._model.base_model(ids, use_cache=False).last_hidden_state[0]
            return self._prompts.compute(chunk, hidden)

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._model.get_output_embeddings()(hidden)  # type: ignore[no-untyped-call]
        return _shaped(logits.float(), self._model.config.get_text_config())


def _shaped(logits: Tensor, config: Any) -> Tensor:
    """As forward passes of models leave them, which do more than a product (Gemma 2, Granite, Cohere)."""
    logits *= getattr(config, "logit_scale", None) or 1.0
    logits /= getattr(config, "logits_scaling", None) or 1.0
    softcap = getattr(config, "final_logit_softcapping", None)
    return logits if softcap is None else torch.tanh(logits / softcap) * softcap


class _Held:
    """A call, which row of it is whose, and what each row drew last, as far as it was wanted."""

    def __init__(self, generation: BatchGeneration, requests: Sequence[str]) -> None:
        self._generation = generation
        self._rows = {request: row for row, request in enumerate(requests)}
        self._last: dict[str, tuple[int, int | None]] = {}  # position and token

    def goes_on_with(self, chunks: Sequence[Chunk]) -> bool:
        """Whether each of the chunks is the token that its row drew last."""
        if self._generation.is_over:
            return False
        return all(
            len(chunk.tokens) == 1 and self._last.get(chunk.request) == (chunk.start, chunk.tokens[0])
            for chunk in chunks
        )

    def step(self, draws: Mapping[str, Draw]) -> Mapping[str, SampledToken]:
        sampled = self._generation.step({self._rows[request]: draw for request, draw in draws.items()})
        by_request = {request: sampled[self._rows[request]] for request in draws}
        self._last = {request: (draw.position, by_request[request].token) for request, draw in draws.items()}
        return by_request

    def stop(self) -> None:
        self._generation.stop()


def _draw_of(chunk: Chunk) -> Draw:
    draw = chunk.draw
    if draw is None or (chunk.start and len(chunk.tokens) > 1):
        raise ValueError(f"{chunk.request}: transformers' generate computes prompts whole, and this is a part of one")
    return draw
