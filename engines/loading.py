"""Makes what an engine runs on: models, KV memory, transports, costs. Runs in the compute thread, before ready."""

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from engines.batch import StepExecutor
from engines.blocks import BlockPool
from engines.calibration import Costs, CostStore, Scratch, cost_key, measure
from engines.costs import Correction
from engines.models.cache import Cache
from engines.models.config import ModelConfig
from engines.models.store import prepared_dir
from engines.scheduler import ServiceQueue
from engines.status import Service
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.shape import kv_shape
from kvtransfer.layout import KVLayout
from kvtransfer.memory import KVMemory, PeerMemories
from kvtransfer.transports import Transport, transports_of
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, ServiceSpec, Topology

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine's collaborators, by service name where there is one for each."""

    executor: StepExecutor
    services: Mapping[str, Service]
    transports: Mapping[str, Mapping[str, Transport]]


@dataclass(frozen=True, slots=True)
class Model:
    """A service whose model is on disk and whose KV pool is allocated."""

    spec: ServiceSpec
    config: ModelConfig
    memory: KVMemory
    torch_service: TorchService


def load(topology: Topology, engine: EngineSpec, peers: PeerMemories) -> Loaded:
    """Load the services of an engine. Raise `UserError` if a model is missing or the KV memory too small."""
    models = [_model(topology.service(name), engine) for name in engine.services]
    executor = TorchExecutor([model.torch_service for model in models], engine.device, engine.threads)
    services = {model.spec.name: _service(model, engine, executor) for model in models}
    checksum = topology.transfer.checksum
    transports = {model.spec.name: transports_of(model.memory, peers, checksum) for model in models}
    return Loaded(executor, services, transports)


def _model(spec: ServiceSpec, engine: EngineSpec) -> Model:
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
    return Model(spec, config, memory, torch_service)


def _service(model: Model, engine: EngineSpec, executor: StepExecutor) -> Service:
    spec, layout = model.spec, model.memory.layout
    costs = _costs(spec, engine, executor, layout)
    limit = min(spec.max_context or model.config.max_context, model.config.max_context)
    pool = BlockPool(layout.num_blocks, engine.block_size, model.memory.bump)
    return Service(
        ServiceQueue(spec.name, pool),
        layout.shape,
        model.memory.ref(engine.host),
        frozenset(model.config.eos_token_ids),
        limit,
        costs.prefill,
        costs.decode,
        Correction(),
        Correction(),
    )


def _costs(spec: ServiceSpec, engine: EngineSpec, executor: StepExecutor, layout: KVLayout) -> Costs:
    """Measured now, unless this machine remembers them."""
    key = cost_key(
        model=spec.model,
        dtype=spec.dtype,
        device=engine.device,
        threads=engine.threads,
        block_size=engine.block_size,
        chunk_tokens=engine.chunk_tokens,
        torch=importlib.metadata.version("torch"),
        meshserve=importlib.metadata.version("meshserve"),
    )
    store = CostStore(Cache.of_user().root / "costs")
    costs = store.load(key)
    if costs is None:
        log.info("measuring what prefills and decode steps cost", service=spec.name)
        costs = measure(executor, spec.name, Scratch(layout.num_blocks, engine.block_size), engine.chunk_tokens)
        store.save(key, costs)
    return costs
