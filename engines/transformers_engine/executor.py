"""`StepExecutor` over transformers' ``generate``: padded batches in, tokens out."""

import time
from collections.abc import Iterable, Mapping, Sequence
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


class TransformersModel:
    """The model of a service. ``shape``: of blocks that count memory and hold nothing, as transformers keeps KV in a
    cache of its own.
    """

    def __init__(self, service: str, model: PreTrainedModel, shape: KVShape, sampler: Sampler) -> None:
        self.service = service
        self.shape = shape
        self._model = model
        self._sampler = sampler
        self._prompts = PromptLogprobs(self._logits)

    def generation(self, prompts: Sequence[Sequence[int]], most_tokens: int, caller: ComputeThread) -> BatchGeneration:
        return BatchGeneration(self._model, self._sampler, prompts, most_tokens, caller)

    def prompt_logprobs(self, chunk: Chunk) -> list[TokenLogprobs | None] | None:
        """Compute them by a forward pass of their own: ``generate`` computes the logits of last tokens only."""
        if chunk.prompt_logprobs is None:
            return None
        ids = torch.tensor([chunk.tokens], device=self._model.device)
        with torch.inference_mode():
            hidden = self._model.base_model(ids, use_cache=False).last_hidden_state[0]
            return self._prompts.compute(chunk, hidden)

    def release_cache(self) -> None:
        """Give the device what was freed, once it has computed all."""
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)
            torch.cuda.empty_cache()

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._model.get_output_embeddings()(hidden)  # type: ignore[no-untyped-call]
        return _shaped(logits.float(), self._model.config.get_text_config())


class TransformersExecutor:
    """A call of ``generate`` is held between batches. A batch that goes on with rows of it is its next step. Any other
    batch begins a call of its own with all tokens of its requests. So a batch that failed, or was cut in two, goes on.
    One call is held at a time, whichever model it is of: batches are static, and the next one begins when one is over.

    Raise `ValueError` for what no padded batch has: parts of prompts. Models come and go from any thread.
    """

    def __init__(self, models: Iterable[TransformersModel], threads: int) -> None:
        torch.set_num_threads(threads)  # of the calling thread, for log-probabilities of prompts
        self._models = {model.service: model for model in models}
        self._caller = ComputeThread(threads)
        self._held: _Held | None = None

    def add(self, model: TransformersModel) -> None:
        self._models[model.service] = model

    def remove(self, service: str) -> None:
        """Forget a model that is not computed any more; the cache of its last call goes with it."""
        held = self._held
        if held is not None and held.service == service:
            held.stop()
        del self._models[service]

    def close(self) -> None:
        """Nothing is computed any more."""
        if self._held is not None:
            self._held.stop()
        self._caller.end()

    def shape(self, service: str) -> KVShape:
        return self._models[service].shape

    def execute(self, batch: Batch) -> StepResult:
        started = time.perf_counter()
        model = self._models[batch.service]
        sampled = self._draw(model, batch.chunks, batch.rows) if batch.chunks else {}
        results = [_result(model, chunk, sampled[chunk.request]) for chunk in batch.chunks]
        return StepResult(results, time.perf_counter() - started)

    def recover(self, *, frees_memory: bool) -> None:
        """Recover as `StepExecutor` says. The cache of a call that is held goes with it."""
        if self._held is not None:
            self._held.stop()
            self._held = None
        for model in [*self._models.values()]:
            model.release_cache()

    def _draw(self, model: TransformersModel, chunks: Sequence[Chunk], rows: Rows | None) -> Mapping[str, SampledToken]:
        draws = {chunk.request: _draw_of(chunk) for chunk in chunks}
        if self._held is None or not self._held.goes_on_with(model.service, chunks):
            if self._held is not None:
                self._held.stop()
            self._held = self._begin(model, draws, rows)
        return self._held.step(draws)

    def _begin(self, model: TransformersModel, draws: Mapping[str, Draw], rows: Rows | None) -> "_Held":
        most = max(draw.sampling.max_tokens - draw.num_generated for draw in draws.values())
        most = max(1, most) if rows is None else rows.num_left
        prompts = [draw.tokens[: draw.position] for draw in draws.values()]
        return _Held(model.service, model.generation(prompts, most, self._caller), list(draws))


def _result(model: TransformersModel, chunk: Chunk, sampled: SampledToken) -> ChunkResult:
    return ChunkResult(sampled.token, sampled.logprobs, model.prompt_logprobs(chunk), sampled.unsampled)


def _shaped(logits: Tensor, config: Any) -> Tensor:
    """As forward passes of models leave them, which do more than a product (Gemma 2, Granite, Cohere)."""
    logits *= getattr(config, "logit_scale", None) or 1.0
    logits /= getattr(config, "logits_scaling", None) or 1.0
    softcap = getattr(config, "final_logit_softcapping", None)
    return logits if softcap is None else torch.tanh(logits / softcap) * softcap


class _Held:
    """A call, which row of it is whose, and what each row drew last, as far as it was wanted."""

    def __init__(self, service: str, generation: BatchGeneration, requests: Sequence[str]) -> None:
        self.service = service
        self._generation = generation
        self._rows = {request: row for row, request in enumerate(requests)}
        self._last: dict[str, tuple[int, int | None]] = {}  # position and token

    def goes_on_with(self, service: str, chunks: Sequence[Chunk]) -> bool:
        """Whether each of the chunks is the token that its row sampled last."""
        if service != self.service or self._generation.is_over:
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
