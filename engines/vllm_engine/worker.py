"""vLLM's worker, as the backend has it: its KV cache is in our pages, and our sampler draws.

vLLM makes it by its name (`worker_cls`), in the process that it chooses.
"""

from typing import Any

from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.utils import bind_kv_cache

from engines.vllm_engine.memory import FEW_BLOCKS, PagesRef, layer_view, map_pages
from engines.vllm_engine.sampler import MeshSampler, StepLogprobs


class MeshCpuWorker(CPUWorker):  # type: ignore[misc]  # vLLM is not there when types are checked
    def use_pages(self, ref: PagesRef, eos_token_ids: tuple[int, ...]) -> str:
        """Put the KV cache into the engine's pages, and our sampler into the runner.

        After `initialize_from_config`, before anything is computed. Each worker of several has its heads of each layer.
        Answers who gives the blocks their form: the attention and the instructions of the CPU that it uses.
        """
        runner, parallel = self.model_runner, self.parallel_config
        context = runner.compilation_config.static_forward_context
        names = [name for group in runner.kv_cache_config.kv_cache_groups for name in group.layer_names]
        pages = map_pages(ref)
        views = {}
        for layer, name in enumerate(sorted(names, key=extract_layer_index)):
            part = layer * parallel.tensor_parallel_size + self.rank
            views[name] = layer_view(pages, ref.page_bytes, part, context[name].kv_cache, FEW_BLOCKS)
        runner.kv_caches.clear()
        bind_kv_cache(views, context, runner.kv_caches)
        self._sampler = MeshSampler(eos_token_ids, lambda: runner.input_batch.req_ids)
        runner.sampler = self._sampler
        layer = context[names[0]]
        return f"{layer.attn_backend.get_name()} {getattr(layer.impl, 'isa', getattr(layer, 'isa', ''))}".strip()

    def execute_model(self, scheduler_output: Any) -> Any:
        self._sampler.begin(scheduler_output.step)
        return super().execute_model(scheduler_output)

    def take_logprobs(self) -> StepLogprobs:
        """Of the last step."""
        return self._sampler.logprobs
