"""The backend ``torch``: models on disk, KV pools, and costs measured here or remembered."""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import structlog
import torch

from engines.adapters.folder import AdapterFolder
from engines.backend import Backend, LoadedModel
from engines.costs.calibration import calibrate, calibrate_whole
from engines.costs.measuring import Scratch, usual_sampling
from engines.costs.profiles import ProfileFile
from engines.memory.weight_room import WeightRoom
from engines.models.backends import check_torch_runs
from engines.models.cache import Cache
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.models.tasks import check_task, pooling_of
from engines.profiling.store import ProfileStore, profile_key, profile_of
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.gpu_memory import gpu_memory, pages_tensor
from engines.torch_engine.layers.cpu_kernels import KERNELS
from engines.torch_engine.pooled.models import computes_whole
from engines.torch_engine.shape import compute_dtype, kv_shape
from engines.torch_engine.staging import TorchStager
from engines.torch_engine.tensors import ReadTensor, read_tensor
from engines.torch_engine.weights import loaded_bytes
from kvtransfer.gpu.device_memory import DeviceKVMemory, DeviceMemory
from kvtransfer.layout import PageLayout, block_bytes
from kvtransfer.memory import KVMemory, PagedMemory
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, ServiceSpec, Task
from mesh.wire.requests import Pooling
from mesh.wire.transfers import KVShape

SCRATCH_BLOCKS = 272  # for the largest batch that `calibrate` measures, if blocks have 16 tokens

ADVICE = {"advice": "install a C compiler and Python's headers, then MeshServe again"}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TorchModel:
    """A service whose model is on disk and whose KV memory is allocated."""

    spec: ServiceSpec
    config: ModelConfig
    memory: KVMemory | DeviceKVMemory
    torch_service: TorchService


def torch_backend(engine: EngineSpec, services: Sequence[ServiceSpec], later: Sequence[ServiceSpec]) -> Backend:
    """Raise `UserError` if a model is missing or the KV memory too small. For ``later`` see `open_memory`."""
    memory, room = open_memory(engine, services, later), WeightRoom(engine, partial(_free_bytes, engine.device))
    executor = load_executor(engine, ())
    if engine.device == "cpu" and not KERNELS:
        log.warning("kernels for processors were not compiled: decodes are slower", **ADVICE)
    profiles, measured_when = ProfileStore.of(Cache.of_user()), "measured when an engine started"

    stager = TorchStager(engine)

    def add(spec: ServiceSpec) -> LoadedModel:
        model = open_model(engine, spec, memory, stager.reader(spec.name))
        num_bytes = loaded_bytes(model.torch_service.folder, model.config, spec.dtype, engine.device)
        room.take(spec.name, num_bytes)
        try:
            with profiles.measuring(key_of(engine, spec)) as known:
                if known is None:
                    profile = _measure(engine, model, executor, measured_when)
                    profiles.save(key_of(engine, spec), profile)
                else:
                    profile = known
                    executor.add(model.torch_service)
        except BaseException:
            room.give_back(spec.name)
            raise
        stager.unstage(spec.name)
        cost, whole = profile.profile().cost, _is_whole(spec, model)
        factors = compute_dtype(spec.dtype, engine.device.partition(":")[0])
        return LoadedModel.of(
            spec, model.config, model.memory, cost, num_bytes, whole_prompts=whole, factor_dtype=factors
        )

    def remove(service: str) -> None:
        executor.remove(service)
        room.give_back(service)

    models = {spec.name: add(spec) for spec in services}
    measured_when = "measured when a service was loaded"
    return Backend(executor, memory, models, add, remove, TorchAdapters(executor), executor.threads.follow, stager)


@dataclass(frozen=True, slots=True)
class TorchAdapters:
    """The `AdapterLoader` of an executor."""

    executor: TorchExecutor

    def add(self, service: str, key: str, adapter: AdapterFolder) -> None:
        self.executor.add_adapter(service, key, adapter)

    def remove(self, service: str, key: str) -> None:
        self.executor.remove_adapter(service, key)


def _free_bytes(device: str) -> int:
    """Of the memory that weights lie in, now."""
    if device == "cpu":
        return psutil.virtual_memory().available  # type: ignore[no-any-return]
    return torch.cuda.mem_get_info(device)[0]


def open_memory(
    engine: EngineSpec, services: Sequence[ServiceSpec], later: Sequence[ServiceSpec] = ()
) -> PagedMemory | DeviceMemory:
    """KV memory for ``services``, in pages that suit those that may come ``later``, too, if their models are here.

    Raise `UserError` if a model of ``services`` is missing or the KV memory too small.
    """
    shapes = [_shape(engine, spec) for spec in services]
    shapes += [shape for spec in later if (shape := _shape_if_here(engine, spec)) is not None]
    try:
        layout = PageLayout.fitting(shapes, engine.kv_memory_bytes)
    except ValueError as error:
        raise UserError(f"engines.{engine.id}: kv_memory: {error}") from None
    return PagedMemory(layout) if engine.device == "cpu" else gpu_memory(engine, layout)


def _shape(engine: EngineSpec, spec: ServiceSpec) -> KVShape:
    return kv_shape(_config(prepared_dir(spec.model)), spec.dtype, engine.block_size, spec.kv_dtype)


def _config(folder: Path) -> ModelConfig:
    config = ModelConfig.load(folder)
    check_torch_runs(folder, config)
    return config


def _shape_if_here(engine: EngineSpec, spec: ServiceSpec) -> KVShape | None:
    """None, too, if the engine could not hold a single block of it."""
    try:
        shape = _shape(engine, spec)
    except ModelError as error:
        log.info(
            "the KV memory is not made for a service whose model is not here", service=spec.name, reason=str(error)
        )
        return None
    return shape if block_bytes(shape) <= engine.kv_memory_bytes else None


def open_model(
    engine: EngineSpec, spec: ServiceSpec, memory: PagedMemory | DeviceMemory, read: ReadTensor = read_tensor
) -> TorchModel:
    """Load a model of the torch engine. ``memory`` is of `open_memory` for that service; ``read`` will read its
    tensors. Raise `UserError` if the model is missing.
    """
    folder = prepared_dir(spec.model)
    config = _config(folder)
    check_task(folder, config, spec.task)
    torch_service = TorchService(
        spec.name,
        folder,
        config,
        spec.dtype,
        engine.block_size,
        memory.pages.reshape(-1).data if isinstance(memory, PagedMemory) else pages_tensor(memory),
        memory.layout.page_bytes,
        spec.task,
        read,
        spec.kv_dtype,
    )
    try:
        shape = kv_shape(config, spec.dtype, engine.block_size, spec.kv_dtype)
        blocks = KVMemory(memory, shape) if isinstance(memory, PagedMemory) else DeviceKVMemory(memory, shape)
    except ValueError as error:
        raise UserError(f"{error}; start the engine again with it among its services") from None
    return TorchModel(spec, config, blocks, torch_service)


def _is_whole(spec: ServiceSpec, model: TorchModel) -> bool:
    """Whether its prompts are computed in one step each."""
    folder, config = model.torch_service.folder, model.config
    return computes_whole(config, pooling_of(folder, config) if spec.task is Task.EMBED else None)


def load_executor(engine: EngineSpec, models: Sequence[TorchModel]) -> TorchExecutor:
    return TorchExecutor([model.torch_service for model in models], engine.device, engine.threads)


def key_of(engine: EngineSpec, spec: ServiceSpec) -> str:
    """Return the key under which the profile of a service on such an engine is kept."""
    return profile_key(
        model=spec.model,
        **({"task": str(spec.task)} if spec.pools else {}),
        dtype=spec.dtype,
        **({"kv_dtype": spec.kv_dtype} if spec.kv_dtype else {}),
        device=engine.device,
        threads=engine.threads,
        block_size=engine.block_size,
        chunk_tokens=engine.chunk_tokens,
        torch=importlib.metadata.version("torch"),
        kernels=KERNELS,
        meshserve=importlib.metadata.version("meshserve"),
    )


def _measure(engine: EngineSpec, model: TorchModel, executor: TorchExecutor, when: str) -> ProfileFile:
    """Load it, with scratch memory at first, and measure what it costs."""
    spec, layout = model.spec, model.memory.layout
    log.info("measuring what prefills and decode steps cost", service=spec.name)
    scratch_layout = PageLayout.of([layout.shape], min(SCRATCH_BLOCKS, layout.num_blocks))
    device = model.memory.device if isinstance(model.memory, DeviceKVMemory) else None
    memory = PagedMemory(scratch_layout) if device is None else DeviceMemory(scratch_layout, device)
    executor.add(open_model(engine, spec, memory, model.torch_service.read).torch_service)
    pooling = Pooling() if spec.pools else None
    scratch = Scratch(spec.name, memory.layout.num_pages, engine.block_size, usual_sampling(spec), pooling)
    if _is_whole(spec, model):
        costs = calibrate_whole(executor, scratch, model.config.max_context)
    else:
        costs = calibrate(executor, scratch, engine.chunk_tokens)
    executor.move(model.torch_service)
    memory.close()
    return profile_of(engine, spec, layout.shape, costs, when)
