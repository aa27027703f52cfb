"""The backend ``transformers``: models as transformers loads them, and costs measured here or remembered."""

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
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.models.weight_size import stored_bytes
from engines.profiling.store import ProfileStore, profile_key, profile_of
from engines.torch_engine.sampling.sampler import Sampler
from engines.torch_engine.shape import kv_shape
from engines.transformers_engine.executor import TransformersExecutor, TransformersModel, load_model
from engines.transformers_engine.measuring import measure
from kvtransfer.layout import KVLayout, PageLayout, block_bytes
from kvtransfer.memory import KVMemory, PagedMemory
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, ServiceSpec
from mesh.wire.transfers import KVShape

HEAD_DIM = 32  # of blocks that count memory: of any number of tokens, one fills a page

log = structlog.get_logger()


def transformers_backend(
    engine: EngineSpec, services: Sequence[ServiceSpec], later: Sequence[ServiceSpec], version: str
) -> Backend:
    """Raise `UserError` if a model is missing or memory too small. ``later``: services that may come, for whose blocks
    pages are made, too, if their models are here. ``version``: of transformers.
    """
    check_device(engine)
    pages = EmptyPages(engine, services, later)
    room = WeightRoom(engine, partial(_free_bytes, engine.device))
    executor = TransformersExecutor((), engine.threads)

    def add(spec: ServiceSpec) -> LoadedModel:
        folder = prepared_dir(spec.model)
        config = ModelConfig.load(folder)
        num_bytes = stored_bytes(folder, getattr(torch, spec.dtype).itemsize)
        blocks = pages.blocks_of(spec)
        room.take(spec.name, num_bytes)
        try:
            weights, sampler = load_model(folder, spec.dtype, engine.device), Sampler.of(folder, config)
            model = TransformersModel(spec.name, weights, blocks.layout.shape, sampler)
            profile = _profile(engine, spec, model, blocks.layout.num_tokens, config.max_context, version)
        except BaseException:
            room.give_back(spec.name)
            raise
        executor.add(model)
        return LoadedModel.of(spec, config, blocks, profile.profile().cost, num_bytes)

    def remove(service: str) -> None:
        executor.remove(service)
        room.give_back(service)

    return Backend(executor, pages.memory, {spec.name: add(spec) for spec in services}, add, remove)


def check_device(engine: EngineSpec) -> None:
    """Raise `UserError` unless torch can compute there."""
    try:
        torch.empty(1, device=engine.device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"engines.{engine.id}: device {engine.device}: {reason}") from None


class EmptyPages:
    """As many pages as ``kv_memory`` has for blocks of all services. They count what the caches of transformers may
    hold, and hold nothing: in each lie as many blocks of a service as in a page of a torch engine.

    Raise `UserError` if there is not one page.
    """

    def __init__(self, engine: EngineSpec, services: Sequence[ServiceSpec], later: Sequence[ServiceSpec]) -> None:
        self._block_size = engine.block_size
        shapes = [_shape(engine, spec) for spec in services]
        shapes += [shape for spec in later if (shape := _shape_if_here(engine, spec)) is not None]
        try:
            self._pages = PageLayout.fitting(shapes, engine.kv_memory_bytes)
        except ValueError as error:
            raise UserError(f"engines.{engine.id}: kv_memory: {error}") from None
        most = self._pages.most_slots
        self._num_layers = most * most  # so that blocks of a part of them fit in as often as they are to
        page = block_bytes(counted(self._block_size, self._num_layers))
        self.memory = PagedMemory(PageLayout(self._pages.num_pages, page, most))
        self._shape = partial(_shape, engine)

    def __repr__(self) -> str:
        return f"<EmptyPages {self._pages}>"

    def blocks_of(self, spec: ServiceSpec) -> KVMemory:
        """Raise `UserError` if the pages were not made for them."""
        slots = KVLayout(self._shape(spec), self._pages).slots
        if not slots:
            problem = f"the KV memory was not made for blocks of {spec.name}"
            raise UserError(f"{problem}; start the engine again with it among its services")
        return KVMemory(self.memory, counted(self._block_size, self._num_layers // slots))


def counted(block_size: int, num_layers: int = 1) -> KVShape:
    return KVShape(num_layers, 1, HEAD_DIM, block_size, "float16")


def _shape(engine: EngineSpec, spec: ServiceSpec) -> KVShape:
    return kv_shape(ModelConfig.load(prepared_dir(spec.model)), spec.dtype, engine.block_size)


def _shape_if_here(engine: EngineSpec, spec: ServiceSpec) -> KVShape | None:
    """None, too, if the engine could not hold a single block of it."""
    try:
        shape = _shape(engine, spec)
    except ModelError:
        return None
    return shape if block_bytes(shape) <= engine.kv_memory_bytes else None


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
    model: TransformersModel,
    num_tokens: int,
    max_context: int,
    version: str,
) -> ProfileFile:
    """What it costs: as remembered, or measured now, beside what the engine computes."""
    store, key = ProfileStore.of(Cache.of_user()), key_of(engine, spec, version)
    with store.measuring(key) as known:
        if known is not None:
            return known
        log.info("measuring what prefills and decode steps cost", service=spec.name)
        sampling = msgspec.structs.replace(usual_sampling(spec), max_tokens=max_context)
        executor = TransformersExecutor([model], engine.threads)
        try:
            cost = measure(executor, spec.name, num_tokens, max_context, sampling)
        finally:
            executor.close()
        profile = profile_of(engine, spec, _shape(engine, spec), cost, "measured when a service was loaded")
        store.save(key, profile)
        return profile
