"""Adds to vLLM's workers that their KV cache is in our pages and our sampler chooses tokens."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.worker.utils import bind_kv_cache

from engines.adapters.folder import AdapterFolder
from engines.grammars.masks import BRIEFLY_S
from engines.grammars.process import WALL_S
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Unsampled
from engines.torch_engine.sampling.sampler import Sampler
from engines.vllm_engine.adapters.placed import PlacedAdapters
from engines.vllm_engine.memory import FEW_BLOCKS, Pages, block_form, layer_view, split_form
from engines.vllm_engine.sampler import MeshSampler, StepLogprobs
from mesh.process.ties import Ties


class InPages:
    """A mixin that a vLLM worker inherits from first."""

    model_runner: Any
    parallel_config: Any
    rank: int
    _adapters: PlacedAdapters | None = None

    def use_pages(self, pages: Pages, folder: str) -> str:
        """Put the KV cache into the engine's pages, and our sampler into the runner.

        ``folder`` is the model's. After `initialize_from_config`, before anything is computed. Each worker of several
        has its heads of each layer. Return what gives the blocks their form: the attention, and the instructions of the
        CPU that it uses. The order of a block's axes is part of it where that is not vLLM's order of naming them. So is
        the number of workers, where engines with another number could not read the blocks.
        """
        runner, parallel = self.model_runner, self.parallel_config
        if parallel.world_size > 1:  # a process of its own, which would wait for its engine for ever
            Ties(parent=os.getppid()).end_with_parent()
        context = runner.compilation_config.static_forward_context
        names = [name for group in runner.kv_cache_config.kv_cache_groups for name in group.layer_names]
        memory, views = pages.tensor(), {}
        for layer, name in enumerate(sorted(names, key=extract_layer_index)):
            part = layer * parallel.tensor_parallel_size + self.rank
            views[name] = layer_view(memory, pages.places, part, context[name].kv_cache, FEW_BLOCKS)
        layer, order = context[names[0]], block_form(context[names[0]].kv_cache, FEW_BLOCKS)
        layout = getattr(runner.kv_cache_config, "kv_cache_layout", "")
        split = split_form(str(layout), parallel.tensor_parallel_size)
        runner.kv_caches.clear()
        bind_kv_cache(views, context, runner.kv_caches)
        # Several workers draw each for itself: none may be late for what the others have.
        patience_s = BRIEFLY_S if parallel.tensor_parallel_size == 1 else WALL_S
        sampler = Sampler.of(Path(folder), ModelConfig.load(Path(folder)), patience_s)
        self._sampler = MeshSampler(sampler, lambda: runner.input_batch.req_ids)
        runner.sampler = self._sampler
        instructions = getattr(layer.impl, "isa", getattr(layer, "isa", ""))
        is_plain = order == "".join(sorted(order))
        return " ".join(
            filter(None, [layer.attn_backend.get_name(), str(instructions), "" if is_plain else order, split])
        )

    def execute_model(self, scheduler_output: Any) -> Any:
        self._sampler.begin(scheduler_output.step)
        return super().execute_model(scheduler_output)  # type: ignore[misc]  # vLLM's worker has it

    def read_adapter(self, number: int, adapter: AdapterFolder) -> str:
        """Read a LoRA adapter's files, in any thread. Return why it cannot be; empty if it was read."""
        return _tried(lambda: self._placed().read(number, adapter))

    def place_adapter(self, number: int, _adapter: AdapterFolder) -> str:
        """Put what was read where steps find it. Return why it cannot be; empty if it is there."""
        return _tried(lambda: self._placed().place(number))

    def drop_adapter(self, number: int) -> None:
        """Forget a LoRA adapter, if it is known."""
        self._placed().drop(number)

    def _placed(self) -> PlacedAdapters:
        if self._adapters is None:
            manager = self.model_runner.lora_manager
            self._adapters = PlacedAdapters(manager._adapter_manager, manager.lora_config.lora_dtype)
        return self._adapters

    def take_logprobs(self) -> StepLogprobs:
        """Return the log-probabilities of the last step."""
        return self._sampler.logprobs

    def take_unsampled(self) -> dict[str, Unsampled]:
        """Return, by request, why the last step sampled no token."""
        return self._sampler.unsampled


def _tried(work: Callable[[], str | None]) -> str:
    """Return what went wrong, in one line: of an exception of a worker in another process, that is its last line."""
    try:
        with torch.inference_mode():
            return work() or ""
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        return f"vLLM: {type(error).__name__}: {first}"
