"""The backend ``transformers``: a model as transformers loads it, and costs measured here or remembered."""

import importlib.metadata
from collections.abc import Sequence
from functools import partial

import msgspec
import psutil
import structlog
import torch

from engines.backend import Backend, LoadedModel
from engines.costs.measuring import usual_sampling
from engines.costs.profiles import ProfileFile
from engines.memory.weight_room import WeightRoom
from engines.models.cache import Cache
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.models.weight_size import stored_bytes
from engines.profiling.store import ProfileStore, profile_key, profile_of
from engines.torch_engine.sampling.sampler import Sampler
from engines.torch_engine.shape import kv_shape
from engines.transformers_engine.executor import TransformersExecutor, load_model
from engines.transformers_engine.measuring import measure
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, ServiceSpec
from mesh.wire.transfers import KVShape

HEAD_DIM = 32  # of blocks that count memory: of any number of tokens, one fills a page

log = structlog.get_logger()


def transformers_backend(engine: EngineSpec, services: Sequence[ServiceSpec], version: str) -> Backend:
    """Make the backend of one service. Raise `UserError` if the model is missing or memory too small. ``version``: of
    transformers.
    """
    check_device(engine)
    [spec] = services
    folder = prepared_dir(spec.model)
    config = ModelConfig.load(folder)
    num_bytes = stored_bytes(folder, getattr(torch, spec.dtype).itemsize)
    WeightRoom(engine, partial(_free_bytes, engine.device)).take(spec.name, num_bytes)
    shape = kv_shape(config, spec.dtype, engine.block_size)
    memory = open_memory(engine, shape)
    blocks = KVMemory(memory, counted(engine.block_size))
    model = load_model(folder, spec.dtype, engine.device)
    sampler = Sampler.of(folder, config)
    executor = TransformersExecutor(spec.name, model, blocks.layout.shape, sampler, engine.threads)
    costs = _profile(engine, spec, shape, executor, blocks.layout.num_tokens, config.max_context, version)
    loaded = LoadedModel.of(spec, config, blocks, costs.profile().cost, num_bytes)
    return Backend.of_one("transformers", engine, spec, executor, memory, loaded)


def check_device(engine: EngineSpec) -> None:
    """Raise `UserError` unless torch can compute there."""
    try:
        torch.empty(1, device=engine.device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"engines.{engine.id}: device {engine.device}: {reason}") from None


def open_memory(engine: EngineSpec, shape: KVShape) -> PagedMemory:
    """Open as many blocks as ``kv_memory`` has for tokens of that ``shape``. They count what the cache of transformers
    may hold, and hold nothing. Raise `UserError` if there is not one.
    """
    try:
        num_blocks = PageLayout.fitting([shape], engine.kv_memory_bytes).num_pages
    except ValueError as error:
        raise UserError(f"engines.{engine.id}: kv_memory: {error}") from None
    return PagedMemory(PageLayout.of([counted(engine.block_size)], num_blocks))


def counted(block_size: int) -> KVShape:
    return KVShape(1, 1, HEAD_DIM, block_size, "float16")


def key_of(engine: EngineSpec, spec: ServiceSpec, version: str) -> str:
    """Return the key under which the profile of a service on such an engine is kept."""
    return profile_key(
        model=spec.model,
        dtype=spec.dtype,
        device=engine.device,
        threads=engine.threads,
        transformers=version,
        torch=importlib.metadata.version("torch"),
        meshserve=importlib.metadata.version("meshserve"),
    )


def _free_bytes(device: str) -> int:
    """Of the memory that weights lie in, now."""
    if device == "cpu":
        return psutil.virtual_memory().available  # type: ignore[no-any-return]
    return torch.cuda.mem_get_info(device)[0]


def _profile(
    engine: EngineSpec,
    spec: ServiceSpec,
    shape: KVShape,
    executor: TransformersExecutor,
    num_tokens: int,
    max_context: int,
    version: str,
) -> ProfileFile:
    """What it costs: as remembered, or measured now."""
    store, key = ProfileStore.of(Cache.of_user()), key_of(engine, spec, version)
    with store.measuring(key) as known:
        if known is not None:
            return known
        log.info("measuring what prefills and decode steps cost", service=spec.name)
        sampling = msgspec.structs.replace(usual_sampling(spec), max_tokens=max_context)
        cost = measure(executor, spec.name, num_tokens, max_context, sampling)
        profile = profile_of(engine, spec, shape, cost, "measured when an engine started")
        store.save(key, profile)
        return profile
