"""The backend ``vllm``: vLLM computes, in pages that peers read, at costs measured here or remembered."""

import importlib.metadata
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import structlog
import torch

from engines.adapters.places import Places, bytes_of_rank, projections_of
from engines.backend import Backend, LoadedModel
from engines.costs.calibration import DECODE_SIZES, calibrate, calibrate_whole
from engines.costs.measuring import Scratch
from engines.costs.profiles import ProfileFile
from engines.costs.step_cost import StepCost
from engines.images.form import ImageForm
from engines.memory.weight_room import WeightRoom
from engines.models.cache import Cache
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.models.tasks import check_task, context_of
from engines.models.weight_size import stored_bytes
from engines.profiling.store import ProfileStore, profile_key, profile_of
from engines.scheduling.batch import Chunk, Draw
from engines.torch_engine.gpu_memory import gpu_memory
from engines.torch_engine.shape import ENCODER_HEAD_DIM
from engines.vllm_engine.adapters.loader import ENABLING, ServiceAdapters, VllmAdapters
from engines.vllm_engine.executor import VllmExecutor, VllmService
from engines.vllm_engine.gpu import FIRST, PARALLEL, gpu_share, see_only
from engines.vllm_engine.memory import BlockStarts, GpuPages, HostPages, Pages
from engines.vllm_engine.pooled import PoolerSettings, VllmPooler
from engines.vllm_engine.runner import RunnerSettings, VllmRunner
from engines.vllm_engine.starting import said_in_a_line
from engines.vllm_engine.versions import installed_vllm
from kvtransfer.gpu.device_memory import DeviceKVMemory, DeviceMemory
from kvtransfer.layout import KVLayout, PageLayout, block_bytes
from kvtransfer.memory import Geometry, KVMemory, PagedMemory
from mesh.errors import UserError
from mesh.sizes import in_words
from mesh.topology.schema import EngineSpec, ServiceSpec
from mesh.wire.requests import Pooling, Sampling
from mesh.wire.transfers import KVShape

OURS = (  # options of vLLM that the engine sets
    "model", "dtype", "block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "worker_cls",
    "enable_prefix_caching", "async_scheduling", "kv_cache_memory_bytes", "speculative_config", "skip_tokenizer_init",
    *ENABLING,
)  # fmt: skip
PROBE = Chunk("probe", [0], 0, [0], Draw(Sampling(1, 0, temperature=0.0), [0], 1, 1))  # kernels may be missing
SPARE = 2  # batches may be so many times max_running: requests arrive from others while their places are taken

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class VllmModel:
    """A model that vLLM has loaded, and its blocks."""

    service: VllmService
    memory: KVMemory | DeviceKVMemory
    config: ModelConfig
    images: ImageForm | None
    places: Places | None = None  # for LoRA adapters
    adapters: VllmAdapters | None = None


def vllm_backend(engine: EngineSpec, services: Sequence[ServiceSpec], adapter_rank: int = 0) -> Backend:
    """Make the backend of services that share pages, with LoRA adapters up to ``adapter_rank`` unless it is 0. One that
    makes vectors or scores is alone. Raise `UserError` if vLLM is missing or not one that was tested, or cannot do what
    is asked.
    """
    version = installed_vllm()
    room, sizes = WeightRoom(engine), dict[str, int]()
    for spec in services:
        sizes[spec.name] = stored_bytes(prepared_dir(spec.model), getattr(torch, spec.dtype).itemsize)
        room.take(spec.name, sizes[spec.name])
    if services[0].pools:
        [spec] = services
        return pooled_backend(engine, spec, sizes[spec.name], version)
    memory, executor = open_memory(engine, services), VllmExecutor()
    models, adapters = dict[str, LoadedModel](), dict[str, VllmAdapters]()
    for spec in services:
        model = start_vllm(engine, spec, memory, adapter_rank)
        executor.add(model.service)
        cost = _profile(engine, spec, executor, model, version).profile().cost
        models[spec.name] = LoadedModel.of(
            spec,
            model.config,
            model.memory,
            cost,
            sizes[spec.name],
            images=model.images,
            place_bytes=0 if model.places is None else model.places.place_bytes,
        )
        if model.adapters is not None:
            adapters[spec.name] = model.adapters
    loader = ServiceAdapters(adapters) if adapters else None
    return Backend.of_fixed("vLLM", engine, executor, memory, models, loader)


def pooled_backend(engine: EngineSpec, spec: ServiceSpec, num_bytes: int, version: str) -> Backend:
    """Make the backend of a service that makes vectors or scores. Its blocks are counted, and hold nothing: vLLM has
    the KV of prompts, as long as it computes them.
    """
    _check_options(engine)
    folder = prepared_dir(spec.model)
    config, shape = ModelConfig.load(folder), KVShape(1, 1, ENCODER_HEAD_DIM, engine.block_size, "float32")
    check_task(folder, config, spec.task)
    memory = PagedMemory(PageLayout.of([shape], engine.kv_memory_bytes // block_bytes(shape)))
    max_context = context_of(spec, folder, config)
    if engine.device != "cpu":
        see_only(engine.device, os.environ)
    most_requests = max(SPARE * engine.max_running, *DECODE_SIZES)
    settings = PoolerSettings(
        folder=str(folder),
        task=spec.task,
        dtype=spec.dtype,
        max_context=max_context,
        most_tokens=max(engine.chunk_tokens, max_context),
        most_requests=most_requests,
        kv_memory_bytes=engine.kv_memory_bytes,
        generates=config.encoder is None,
        has_segments=config.encoder is not None and config.encoder.num_segments > 1,
        options=engine.options,
        gpu_share=None if engine.device == "cpu" else gpu_share(),
    )
    with said_in_a_line(settings.folder, config.quantization, engine.device):
        executor = VllmPooler(spec.name, shape, settings)
    blocks = KVMemory(memory, shape)
    scratch = Scratch(spec.name, blocks.layout.num_blocks, engine.block_size, pooling=Pooling())
    known = _known(engine, spec, version, shape, lambda: calibrate_whole(executor, scratch, max_context))
    cost = known.profile().cost
    loaded = LoadedModel.of(spec, config, blocks, cost, num_bytes, whole_prompts=True)
    return Backend.of_fixed("vLLM", engine, executor, memory, {spec.name: loaded})


def open_memory(engine: EngineSpec, services: Sequence[ServiceSpec]) -> PagedMemory | DeviceMemory:
    """Open the KV memory of services. On a GPU, this process sees no other from then on. Raise `UserError` if a model
    or the memory cannot be had.
    """
    shapes = [_shape(engine, spec, ModelConfig.load(prepared_dir(spec.model))) for spec in services]
    try:
        layout = PageLayout.fitting(shapes, engine.kv_memory_bytes)
    except ValueError as error:
        raise UserError(f"engines.{engine.id}: kv_memory: {error}") from None
    if engine.device == "cpu":
        return PagedMemory(layout)
    see_only(engine.device, os.environ)
    return gpu_memory(replace(engine, device=FIRST), layout)


def start_vllm(
    engine: EngineSpec, spec: ServiceSpec, memory: PagedMemory | DeviceMemory, adapter_rank: int = 0
) -> VllmModel:
    """Load the model, with its KV cache in ``memory``. Takes half a minute. Raise `UserError` for options of ours."""
    _check_options(engine)
    if engine.device != "cpu" and (parallel := [name for name in PARALLEL if engine.options.get(name, 1) != 1]):
        raise UserError(
            f"engines.{engine.id}: options.{parallel[0]}: a vLLM engine has one GPU; use an engine for each"
        )
    folder = prepared_dir(spec.model)
    config, images = ModelConfig.load(folder), ImageForm.load(folder)
    most_requests = max(SPARE * engine.max_running, *DECODE_SIZES)
    settings = RunnerSettings(
        folder=str(folder),
        dtype=spec.dtype,
        block_size=engine.block_size,
        max_context=config.max_context,
        most_tokens=max(engine.chunk_tokens, engine.block_size) + most_requests,
        most_requests=most_requests,
        options=engine.options,
        layers=config.num_layers,
        layer_bytes=block_bytes(_shape(engine, spec, config)) // config.num_layers,
        gpu_share=None if engine.device == "cpu" else gpu_share(),
        images=images,
        places=_places(engine, spec, config, adapter_rank),
        projections=projections_of(config),
    )
    with said_in_a_line(settings.folder, config.quantization, engine.device):
        layout = KVLayout(_shape(engine, spec, config), memory.layout)
        where = BlockStarts(memory.layout.page_bytes, layout.block_bytes, layout.slots)
        runner = VllmRunner(settings, _pages(memory, where))
        shape = msgspec.structs.replace(layout.shape, form=runner.form)
        service = VllmService(spec.name, shape, runner, where.of if where.slots > 1 else None)
        service.compute([PROBE])
    blocks = KVMemory(memory, shape) if isinstance(memory, PagedMemory) else DeviceKVMemory(memory, shape)
    return VllmModel(service, blocks, config, images, settings.places, runner.adapters)


def _places(engine: EngineSpec, spec: ServiceSpec, config: ModelConfig, rank: int) -> Places | None:
    if not rank:
        return None
    places = Places.fitting(engine.adapter_memory_bytes, config, spec.dtype, rank)
    if places is None:
        size, memory = bytes_of_rank(config, spec.dtype, rank), engine.adapter_memory_bytes
        raise UserError(
            f"engines.{engine.id}: adapter_memory: {in_words(memory)} hold no adapter of rank {rank}, which takes "
            f"{in_words(size)}; give it more"
        )
    return places


def _check_options(engine: EngineSpec) -> None:
    if taken := [name for name in OURS if name in engine.options]:
        raise UserError(f"engines.{engine.id}: options.{taken[0]}: the engine sets that itself; leave it out")


def _pages(memory: PagedMemory | DeviceMemory, where: BlockStarts) -> Pages:
    if isinstance(memory, DeviceMemory):
        return GpuPages(memory, where)
    layout = memory.layout
    return HostPages(memory.ref("").path, Geometry(layout).pages_offset, layout.num_pages, where)


def key_of(engine: EngineSpec, spec: ServiceSpec, version: str, places: Places | None = None) -> str:
    """Return the key under which the profile of a service on such an engine is kept. Places for LoRA adapters change
    what vLLM compiles.
    """
    return profile_key(
        model=spec.model,
        **({"task": str(spec.task)} if spec.pools else {}),
        dtype=spec.dtype,
        device=engine.device,
        threads=engine.threads,
        block_size=engine.block_size,
        chunk_tokens=engine.chunk_tokens,
        vllm=version,
        options=dict(engine.options),
        **({} if places is None else {"adapters": [places.rank, places.count]}),
        meshserve=importlib.metadata.version("meshserve"),
    )


def _profile(
    engine: EngineSpec, spec: ServiceSpec, executor: VllmExecutor, model: VllmModel, version: str
) -> ProfileFile:
    """What it costs: as remembered, or measured now, in blocks that nobody uses yet."""
    layout = model.memory.layout
    scratch = Scratch(spec.name, layout.num_blocks, engine.block_size)
    measure = partial(calibrate, executor, scratch, engine.chunk_tokens)
    return _known(engine, spec, version, layout.shape, measure, model.places)


def _known(
    engine: EngineSpec,
    spec: ServiceSpec,
    version: str,
    shape: KVShape,
    measure: Callable[[], StepCost],
    places: Places | None = None,
) -> ProfileFile:
    store, key = ProfileStore.of(Cache.of_user()), key_of(engine, spec, version, places)
    with store.measuring(key) as known:
        if known is not None:
            return known
        log.info("measuring what prefills and decode steps cost", service=spec.name)
        profile = profile_of(engine, spec, shape, measure(), "measured when an engine started")
        store.save(key, profile)
        return profile


def _shape(engine: EngineSpec, spec: ServiceSpec, config: ModelConfig) -> KVShape:
    """But for the form of its bytes, which only the kernels know."""
    return KVShape(config.num_layers, config.num_kv_heads, config.head_dim, engine.block_size, spec.dtype)
