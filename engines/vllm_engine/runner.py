"""vLLM's own executor, driven as its engine core drives it, with our batches for its scheduler's.

Here, in the workers (`engines.vllm_engine.in_pages`) and in `sampler` alone is vLLM imported. What it calls its engine
core is not made: no second scheduler decides beside ours.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.adapters.places import Places
from engines.images.form import ImageForm
from engines.scheduling.batch import Unsampled
from engines.vllm_engine.adapters.loader import InTurn, VllmAdapters
from engines.vllm_engine.adapters.loader import arguments as lora_arguments
from engines.vllm_engine.executor import PromptLogprobs, StepOutput
from engines.vllm_engine.images import EncoderOutputs, StepImages, features, of_images
from engines.vllm_engine.memory import FEW_BLOCKS, Pages
from engines.vllm_engine.steps import NewRequest, VllmStep
from mesh.errors import UserError
from mesh.wire.requests import TokenLogprobs

ENVIRONMENT = {  # vLLM reads it when it is imported
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # workers in this process unless there are several
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # its samplers know requests by slots
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # OMP_NUM_THREADS says how many threads, the system says where
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
CPU_WORKER, GPU_WORKER = "engines.vllm_engine.worker.MeshCpuWorker", "engines.vllm_engine.gpu_worker.MeshGpuWorker"
ENOUGH_BYTES = 2**50  # for vLLM to plan a KV cache, which then lies in our pages


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """What vLLM is started with. ``most_tokens`` and ``most_requests`` are of a batch; ``options`` are vLLM's own.

    ``layers`` of KV are in a block, of ``layer_bytes`` each: what the pages are made for.
    ``gpu_share``: of the GPU's memory, that vLLM may use; None: it computes on CPUs. ``images``: how the model sees
    them; None: it does not. ``places``: for LoRA adapters of its ``projections``; None: it computes none.
    """

    folder: str
    dtype: str
    block_size: int
    max_context: int
    most_tokens: int
    most_requests: int
    options: Mapping[str, object]
    layers: int
    layer_bytes: int
    gpu_share: float | None = None
    images: ImageForm | None = None
    places: Places | None = None
    projections: Sequence[str] = ()


class VllmRunner:
    """A model that is loaded, with its KV cache in ``pages``. Used from the thread that makes it.

    ``form`` names how bytes lie in its blocks: engines of other forms cannot read them.
    """

    def __init__(self, settings: RunnerSettings, pages: Pages) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._settings = settings
        self._encoder = EncoderOutputs()
        config = _config(settings)
        self._executor, self._turn = _executor(config, settings), InTurn()
        self.adapters = _adapters(self._executor, self._turn, settings, config.parallel_config.world_size)
        [self.form, *_] = self._executor.collective_rpc("use_pages", args=(pages, settings.folder))
        self._executor.compile_or_warm_up_model()
        _settle()

    def compute(self, step: VllmStep) -> StepOutput:
        with self._turn.held():
            if self.adapters is not None:
                self.adapters.forget_gone()
            return self._compute(step)

    def _compute(self, step: VllmStep) -> StepOutput:
        settings = self._settings
        num_tokens = sum(step.num_tokens.values())
        if num_tokens > settings.most_tokens or len(step.num_tokens) > settings.most_requests:
            raise ValueError(f"{num_tokens} tokens of {len(step.num_tokens)} requests are too many for one batch")
        images = self._encoder.plan(step.new)
        try:
            new = [self._new_request(request, images) for request in step.new]
            self._executor.execute_model(_scheduler_output(step, num_tokens, images, new))
            output = self._executor.sample_tokens(None)
        except Exception:
            self._encoder.failed()
            raise
        sampled = zip(output.req_ids, output.sampled_token_ids, strict=True)
        wanted = {name: int(ids[0]) for name, ids in sampled if step.draws[name] is not None}
        tokens = {name: token for name, token in wanted.items() if token >= 0}
        unsampled: dict[str, Unsampled] = {}
        if len(tokens) < len(wanted):
            [unsampled, *_] = self._executor.collective_rpc("take_unsampled")
        if not _wants_logprobs(step):
            return StepOutput(tokens, {}, {}, unsampled)
        [logprobs, *_] = self._executor.collective_rpc("take_logprobs")
        asked = [request for request in step.new if request.prompt_logprobs is not None]
        tensors = output.prompt_logprobs_dict
        prompts = {
            request.id: _of_prompt(request, tensors.get(request.id), logprobs.first.get(request.id))
            for request in asked
        }
        return StepOutput(tokens, logprobs.sampled, prompts, unsampled)

    def _new_request(self, request: NewRequest, images: StepImages) -> Any:
        form, encoded = self._settings.images, images.encoded.get(request.id, ())
        shown = [] if form is None else features(request, form, encoded)
        return _new_request(request, shown, _lora_request(request.adapter, self.adapters))


def _config(settings: RunnerSettings) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    arguments: dict[str, Any] = {
        "model": settings.folder,
        "skip_tokenizer_init": settings.images is None,  # vLLM reads an image processor and its tokenizer together
        "dtype": settings.dtype,
        "block_size": settings.block_size,
        "max_model_len": settings.max_context,
        "max_num_seqs": settings.most_requests,
        "max_num_batched_tokens": settings.most_tokens,
        "kv_cache_memory_bytes": 2**20,  # else it counts what is free; ours is elsewhere
        "enable_prefix_caching": False,  # ours is
        "disable_hybrid_kv_cache_manager": True,  # layers with a window keep all KV, as those without do: one kind
        "async_scheduling": False,
        "disable_log_stats": True,
        "worker_cls": CPU_WORKER if settings.gpu_share is None else GPU_WORKER,
    }
    if settings.images is not None:
        arguments |= of_images()
    if settings.gpu_share is not None:
        arguments["gpu_memory_utilization"] = settings.gpu_share
    lora = lora_arguments(settings.places, settings.projections)
    return EngineArgs(**arguments | dict(settings.options) | dict(lora)).create_engine_config()


def _adapters(executor: Any, turn: InTurn, settings: RunnerSettings, num_workers: int) -> VllmAdapters | None:
    places = settings.places
    return None if places is None else VllmAdapters(executor, turn, places.rank, num_workers)


def _executor(config: Any, settings: RunnerSettings) -> Any:
    """As vLLM's engine core makes it, with a KV cache that is small, to be replaced by our pages."""
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
    from vllm.v1.core.kv_cache_utils import get_kv_cache_configs
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    from vllm.v1.executor import Executor

    executor = Executor.get_class(config)(config)
    register_all_kvcache_specs(config)
    specs = executor.get_kv_cache_specs()
    each = [spec for worker in specs for spec in worker.values()]
    layout = resolve_kv_cache_layout(config, executor.get_supported_kv_cache_layouts(), each)
    executor.set_kv_cache_layout(layout.name)
    executor.determine_available_memory()  # compiles, unless it is to be eager
    planned = get_kv_cache_configs(config, specs, [ENOUGH_BYTES] * len(specs))
    for plan in planned:
        check_one_kind(plan.kv_cache_groups, settings, config.parallel_config.tensor_parallel_size)
    caches = [_with_few_blocks(config, plan) for plan in planned]
    config.cache_config.num_gpu_blocks = FEW_BLOCKS
    executor.initialize_from_config(caches)
    return executor


def _settle() -> None:
    """As vLLM's engine core ends its start: what is here stays, and settings are not read anew at every use."""
    from vllm.envs import enable_envs_cache
    from vllm.utils.gc_utils import freeze_gc_heap

    freeze_gc_heap()
    enable_envs_cache()


def check_one_kind(groups: Sequence[Any], settings: RunnerSettings, num_workers: int) -> None:
    """Raise `UserError` unless each layer keeps K and V of every token, alike: what engines hand over in blocks.

    ``groups``: of vLLM's KV cache on one of its workers.
    """
    if len(groups) != 1:
        raise UserError(f"{settings.folder}: vLLM keeps {len(groups)} kinds of KV for it, and engines hand over one")
    [group] = groups
    num_layers, layer_bytes = len(group.layer_names), group.kv_cache_spec.page_size_bytes * num_workers
    if (num_layers, layer_bytes) != (settings.layers, settings.layer_bytes):
        kept, wanted = f"{num_layers} of {layer_bytes} bytes", f"{settings.layers} of {settings.layer_bytes}"
        raise UserError(f"{settings.folder}: vLLM keeps KV in {kept} a block, and layers alike would be {wanted}")


def _with_few_blocks(config: Any, plan: Any) -> Any:
    from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups

    groups = plan.kv_cache_groups
    block_bytes = plan.kv_cache_tensors[0].size // plan.num_blocks
    cache = get_kv_cache_config_from_groups(config, groups, FEW_BLOCKS * block_bytes)
    cache.kv_cache_layout = config.cache_config.kv_cache_layout
    return cache


def _scheduler_output(step: VllmStep, num_tokens: int, images: StepImages, new: list[Any]) -> Any:
    from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput

    known = step.known
    output = SchedulerOutput(
        scheduled_new_reqs=new,
        scheduled_cached_reqs=CachedRequestData(
            req_ids=[request.id for request in known],
            resumed_req_ids=set(),
            new_token_ids=[],
            all_token_ids={},
            new_block_ids=[(list(request.new_blocks),) if request.new_blocks else None for request in known],
            num_computed_tokens=[request.num_computed for request in known],
            num_output_tokens=[request.num_sampled for request in known],
        ),
        num_scheduled_tokens=dict(step.num_tokens),
        total_num_scheduled_tokens=num_tokens,
        scheduled_spec_decode_tokens={},
        scheduled_encoder_inputs=dict(images.encoded),
        finished_req_ids=set(step.forgotten),
        free_encoder_mm_hashes=images.forgotten,
    )
    output.step = step  # for our worker
    return output


def _new_request(request: NewRequest, images: list[Any], lora_request: Any) -> Any:
    """Its sampling is ours: vLLM is told of nothing that would need state."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.core.sched.output import NewRequestData

    return NewRequestData(
        req_id=request.id,
        prompt_token_ids=list(request.tokens),
        mm_features=images,
        sampling_params=SamplingParams(temperature=0.0, prompt_logprobs=request.prompt_logprobs),
        pooling_params=None,
        block_ids=(list(request.blocks),),
        num_computed_tokens=request.num_computed,
        lora_request=lora_request,
    )


def _lora_request(key: str, adapters: VllmAdapters | None) -> Any:
    """Name an adapter that the workers hold. vLLM would read the path only if they did not."""
    if not key:
        return None
    from vllm.lora.request import LoRARequest

    assert adapters is not None, "requests have adapters where there are places for them"
    return LoRARequest(key, adapters.number(key), "held")


def _wants_logprobs(step: VllmStep) -> bool:
    draws = (draw for draw in step.draws.values() if draw is not None)
    return any(draw.sampling.logprobs is not None for draw in draws) or any(
        request.prompt_logprobs is not None for request in step.new
    )


def _of_prompt(request: NewRequest, tensors: Any, first: TokenLogprobs | None) -> PromptLogprobs:
    """Of a chunk. vLLM's rows are of the tokens 1, 2, ... of the prompt; those before the chunk say nothing."""
    entries: list[TokenLogprobs | None] = [first]
    if tensors is None:
        return entries
    begin = request.num_computed
    ids, values = tensors.logprob_token_ids[begin:].tolist(), tensors.logprobs[begin:].tolist()
    for of_row, logprobs in zip(ids, values, strict=True):
        top = list(zip(of_row[1:], logprobs[1:], strict=True))
        entries.append(TokenLogprobs(of_row[0], logprobs[0], top))
    return entries
