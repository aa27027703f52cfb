"""The backend ``torch``: models on disk, KV pools, and costs measured here or remembered."""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from engines.backend import Backend, LoadedModel
from engines.calibration import calibrate
from engines.measuring import Scratch
from engines.models.cache import Cache
from engines.models.config import ModelConfig
from engines.models.store import prepared_dir
from engines.profile_store import ProfileStore, profile_key, profile_of
from engines.profiles import ProfileFile
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.shape import kv_shape
from kvtransfer.layout import KVLayout
from kvtransfer.memory import KVMemory
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, ServiceSpec

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TorchModel:
    """A service whose model is on disk and whose KV pool is allocated."""

    spec: ServiceSpec
    config: ModelConfig
    memory: KVMemory
    torch_service: TorchService


def torch_backend(engine: EngineSpec, services: Sequence[ServiceSpec]) -> Backend:
    """Raise `UserError` if a model is missing or the KV memory too small."""
    models = [open_model(engine, spec) for spec in services]
    executor = load_executor(engine, models)
    profiles = {model.spec.name: _profile(engine, model, executor) for model in models}
    return Backend(executor, {model.spec.name: _loaded(model, profiles[model.spec.name]) for model in models})


def open_model(engine: EngineSpec, spec: ServiceSpec) -> TorchModel:
    """Raise `UserError` if the model is missing or the KV memory too small."""
    folder = prepared_dir(spec.model)
    config = ModelConfig.load(folder)
    shape = kv_shape(config, spec.dtype, engine.block_size)
    try:
        layout = KVLayout.fitting(shape, engine.kv_memory_bytes // len(engine.services))
    except ValueError as error:
        raise UserError(f"{engine.id}: kv_memory, service {spec.name}: {error}") from None
    memory = KVMemory(layout)
    torch_service = TorchService(
        spec.name, folder, config, spec.dtype, engine.block_size, memory.blocks.reshape(-1).data
    )
    return TorchModel(spec, config, memory, torch_service)


def load_executor(engine: EngineSpec, models: Sequence[TorchModel]) -> TorchExecutor:
    return TorchExecutor([model.torch_service for model in models], engine.device, engine.threads)


def key_of(engine: EngineSpec, spec: ServiceSpec) -> str:
    """Under which the profile of a service on such an engine is kept."""
    return profile_key(
        model=spec.model,
        dtype=spec.dtype,
        device=engine.device,
        threads=engine.threads,
        block_size=engine.block_size,
        chunk_tokens=engine.chunk_tokens,
        torch=importlib.metadata.version("torch"),
        meshserve=importlib.metadata.version("meshserve"),
    )


def _loaded(model: TorchModel, profile: ProfileFile) -> LoadedModel:
    limit = model.config.max_context
    return LoadedModel(
        memory=model.memory,
        eos_token_ids=frozenset(model.config.eos_token_ids),
        max_context=min(model.spec.max_context or limit, limit),
        cost=profile.profile().cost,
    )


def _profile(engine: EngineSpec, model: TorchModel, executor: TorchExecutor) -> ProfileFile:
    """Measured now, unless this machine remembers one."""
    spec, layout = model.spec, model.memory.layout
    store, key = ProfileStore.of(Cache.of_user()), key_of(engine, spec)
    known = store.load(key)
    if known is not None:
        return known
    log.info("measuring what prefills and decode steps cost", service=spec.name)
    scratch = Scratch(spec.name, layout.num_blocks, engine.block_size)
    costs = calibrate(executor, scratch, engine.chunk_tokens)
    profile = profile_of(engine, spec, layout, costs, "measured when an engine started")
    store.save(key, profile)
    return profile
