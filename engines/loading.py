"""Makes what an engine runs on: a backend, KV pools, transports. Runs in the compute thread, before ready."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engines.backend import Backend, LoadedModel
from engines.batch import StepExecutor
from engines.learning import LearntCost
from engines.packed import block_pool
from engines.pages import PagePool
from engines.scheduler import ServiceQueue
from engines.status import Service
from kvtransfer.memory import PeerMemories
from kvtransfer.transports import Transport, transports_of
from mesh.errors import UserError
from mesh.topology.report import suggestion
from mesh.topology.schema import EngineSpec, ServiceSpec, Topology

Services = Sequence[ServiceSpec]
MakeBackend = Callable[[EngineSpec, Services, Services], Backend]  # the latter may be loaded later


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine's collaborators, by service name where there is one for each."""

    executor: StepExecutor
    services: Mapping[str, Service]
    transports: Mapping[str, Mapping[str, Transport]]


def load(topology: Topology, engine: EngineSpec, peers: PeerMemories) -> Loaded:
    """Load the services of an engine. Raise `UserError` if its backend is unknown or cannot be made."""
    make = BACKENDS.get(engine.backend)
    if make is None:
        raise UserError(
            f"engines.{engine.id}: backend {engine.backend!r} is unknown; {suggestion(engine.backend, BACKENDS)}"
        )
    backend = make(engine, [topology.service(name) for name in engine.services], _later(topology, engine))
    checksum, pages = topology.transfer.checksum, PagePool(backend.memory.layout.num_pages)
    return Loaded(
        backend.executor,
        {name: _service(name, model, engine, pages) for name, model in backend.models.items()},
        {name: transports_of(model.memory, peers, checksum) for name, model in backend.models.items()},
    )


def _later(topology: Topology, engine: EngineSpec) -> list[ServiceSpec]:
    """The services that engines like this one have, and this one does not: it may be given them."""
    alike = (other for other in topology.engines if other.backend == engine.backend)
    names = dict.fromkeys(name for other in alike for name in other.services if name not in engine.services)
    return [topology.service(name) for name in names]


def _service(name: str, model: LoadedModel, engine: EngineSpec, pages: PagePool) -> Service:
    layout = model.memory.layout
    pool = block_pool(pages, engine.block_size, layout.slots, model.memory)
    return Service(
        ServiceQueue(name, pool),
        layout.shape,
        model.memory.ref(engine.host),
        model.eos_token_ids,
        model.max_context,
        LearntCost(model.cost.in_chunks(engine.chunk_tokens)),
    )


# Imported when chosen: only the torch engine needs torch.


def _torch(engine: EngineSpec, services: Services, later: Services) -> Backend:
    from engines.torch_engine.backend import torch_backend

    return torch_backend(engine, services, later)


def _simulated(engine: EngineSpec, services: Services, _later: Services) -> Backend:
    from engines.simulated import simulated_backend

    return simulated_backend(engine, services)


BACKENDS: Mapping[str, MakeBackend] = {"torch": _torch, "simulated": _simulated}
