"""Makes what an engine runs on: a backend, KV pools, transports. Runs in the compute thread, before ready."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from engines.adapters.access import AdapterFolders
from engines.adapters.places import rank_of
from engines.admission.promises import never_kept
from engines.backend import Backend, LoadedModel
from engines.backend_rules import missing
from engines.checks import check_draft
from engines.costs.learning import LearntCost
from engines.effects import DropAdapter, DropModel, Dropping, DropWeights, LoadAdapter, Loading, LoadModel, UnstageModel
from engines.memory.packed_pool import block_pool
from engines.memory.pages import PagePool
from engines.models.fetching.child import prepare_beside
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.service import Service
from engines.speculation.methods import speculation_of
from engines.tiers.opening import open_tiers
from kvtransfer.gpu.device_memory import DeviceMemory
from kvtransfer.nixl.transport import open_nixl
from kvtransfer.offloaded import OffloadedBlocks
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.tiers.block_file import space_of
from kvtransfer.tiers.tiered_blocks import TieredBlocks
from kvtransfer.transports import Transport, transports_of
from mesh.added.stored import load_deployed
from mesh.errors import UserError
from mesh.suggestions import suggestion
from mesh.topology.schema import EngineSpec, ServiceSpec, Topology
from mesh.transports import NIXL, has_checksums

log = structlog.get_logger()

Services = Sequence[ServiceSpec]
MakeBackend = Callable[[Topology, EngineSpec, Services], Backend]


class Loaded:
    """An engine's collaborators, by service name where there is one for each. They come and go while it runs."""

    def __init__(self, topology: Topology, engine: EngineSpec, peers: PeerMemories, backend: Backend) -> None:
        self.executor = backend.executor
        self.services: dict[str, Service] = {}
        self.transports: dict[str, Mapping[str, Transport]] = {}
        self.offloaded: dict[str, OffloadedBlocks] = {}
        self.tiered: dict[str, TieredBlocks] = {}  # of services whose blocks are in KV tiers
        self._topology = topology
        self._engine = engine
        self._peers = peers
        self._backend = backend
        self._weightless: set[str] = set()  # services that are here without their weights
        self._folders = AdapterFolders(topology)
        self._tiers = open_tiers(topology, engine)
        self._pages = PagePool(backend.memory.layout.num_pages)
        if isinstance(backend.memory, DeviceMemory):
            peers.equip(backend.memory.device, backend.memory.layout.page_bytes)
        if topology.transfer.transport == NIXL:
            peers.nixl = open_nixl(backend.memory)
        for name, model in backend.models.items():
            self.open(name, model)

    def use_threads(self, available: Callable[[], int]) -> None:
        """Compute with as many threads as that says, from step to step, if the backend can."""
        if self._backend.follow_threads is not None:
            self._backend.follow_threads(available)

    def learn(self, name: str) -> frozenset[str]:
        """Look whether a service was added to the mesh since this engine started, or removed from it. Return all that
        there are.
        """
        others = [service for service in self._topology.services if service.name != name or not service.is_added]
        if name not in self.services and all(service.name != name for service in others):
            try:
                offered = load_deployed(self._topology.path).services
            except (UserError, OSError) as error:
                log.error("does not know what was added to the mesh", reason=str(error))
            else:
                found = [service for service in offered if service.name == name and service.is_added]
                self._topology = replace(self._topology, services=(*others, *found))
        return frozenset(service.name for service in self._topology.services)

    def fetch(self, job: Loading) -> LoadedModel | int:
        """Fetch a model, for `open`, or the bytes of weights or an adapter, from wherever they are. Takes long, and any
        thread. Raise `UserError` if it cannot be had.
        """
        if isinstance(job, LoadAdapter):
            self._fetch_adapter(job)
            return job.num_bytes
        spec = next((service for service in self._topology.services if service.name == job.service), None)
        if spec is None:
            raise UserError("it is no service of this mesh any more")
        prepare_beside(spec.model)
        if isinstance(job, LoadModel):
            return self._backend.add(spec)
        if self._backend.stager is None:
            raise UserError(f"engines.{self._engine.id}: its backend stages no weights")
        return self._backend.stager.stage(spec)

    def open(self, name: str, model: LoadedModel) -> Service:
        """Let the engine use it. In the thread of the engine's node, as all that follows. One that lacked its weights
        has its requests as before.
        """
        if name in self._weightless:
            self._weightless.remove(name)
            return self.services[name]
        engine, layout = self._engine, model.memory.layout
        pool = block_pool(self._pages, engine.block_size, layout.slots, model.memory, quota=engine.kv_quotas.get(name))
        if self._tiers and model.identity:
            space = space_of(name, model.identity, self._topology.service(name).dtype, layout.shape)
            self.tiered[name] = TieredBlocks(model.memory, space, self._tiers)
        service = self.services[name] = Service(
            ServiceQueue(name, pool),
            layout.shape,
            model.memory.ref(engine.host),
            model.eos_token_ids,
            model.max_context,
            LearntCost(model.cost.in_chunks(0 if model.whole_prompts else engine.chunk_tokens)),
            weight_bytes=model.weight_bytes,
            vocab_size=model.vocab_size,
            identity=model.identity,
            ttft_s=self._topology.service(name).slo.ttft_s,
            pools=model.pools,
            whole_prompts=model.whole_prompts,
            images=model.images,
            place_bytes=model.place_bytes,
            factor_dtype=model.factor_dtype,
            tiers=self.tiered.get(name),
            speculation=speculation_of(self._topology.service(name), self.services),
        )
        setting, num_hosts = self._topology.transfer.checksum, len(self._topology.hosts)
        self.transports[name] = transports_of(
            model.memory, self._peers, lambda transport: has_checksums(transport, setting, num_hosts)
        )
        self.offloaded[name] = OffloadedBlocks(model.memory)
        for broken in never_kept(self._topology.service(name).slo, [model.cost]):
            log.warning(f"services.{name}.{broken}")
        return service

    def _fetch_adapter(self, order: LoadAdapter) -> None:
        """A LoRA adapter for a model that is here."""
        loader, service = self._backend.adapters, order.service
        if loader is None:
            raise UserError(f"engines.{self._engine.id}: its backend computes no adapters")
        folder = self._folders.read(order.adapter)
        folder.check_fits(ModelConfig.load(prepared_dir(self._topology.service(service).model)), service)
        loader.add(service, order.adapter.key, folder)

    def let_go(self, effect: Dropping) -> None:
        """Drop what computes a model, or all of it, what is staged, or an adapter. What computes an adapter now goes on
        with it.
        """
        match effect:
            case DropWeights(name):
                self._weightless.add(name)
                self._backend.remove(name)
            case DropModel(name):
                self._drop(name)
            case UnstageModel(name):
                if self._backend.stager is not None:
                    self._backend.stager.unstage(name)
            case DropAdapter(service, key):
                if self._backend.adapters is not None and service not in self._weightless:
                    self._backend.adapters.remove(service, key)

    def _drop(self, name: str) -> None:
        """Its memory goes when nobody copies from it any more."""
        del self.services[name], self.transports[name], self.offloaded[name]
        self.tiered.pop(name, None)
        if name in self._weightless:
            self._weightless.remove(name)
        else:
            self._backend.remove(name)


def load(topology: Topology, engine: EngineSpec, peers: PeerMemories) -> Loaded:
    """Load the services of an engine. Raise `UserError` if its backend is unknown or cannot be made."""
    make = BACKENDS.get(engine.backend)
    if make is None:
        raise UserError(
            f"engines.{engine.id}: backend {engine.backend!r} is unknown; {suggestion(engine.backend, BACKENDS)}"
        )
    services = [topology.service(name) for name in engine.services]
    backend = make(topology, engine, services)
    for service in services:
        check_draft(topology, service)
    return Loaded(topology, engine, peers, backend)


def _later(topology: Topology, engine: EngineSpec) -> list[ServiceSpec]:
    """The services that engines like this one have, and this one does not: it may be given them."""
    alike = (other for other in topology.own_engines if other.backend == engine.backend)
    names = dict.fromkeys(name for other in alike for name in other.services if name not in engine.services)
    return [topology.service(name) for name in names]


# Imported when chosen: only some need torch, and neither vLLM nor transformers is in every environment.


def _require(engine: EngineSpec) -> None:
    if problem := missing(engine.backend):
        raise UserError(f"engines.{engine.id}: {problem}")


def bring(backend: str) -> None:
    """Import what engines of a backend need, as far as that is worth it before one is chosen."""
    if backend == "torch" and not missing(backend):
        from engines.torch_engine.first_import import import_torch

        import_torch()
        importlib.import_module("engines.torch_engine.backend")


def _torch(topology: Topology, engine: EngineSpec, services: Services) -> Backend:
    _require(engine)
    bring(engine.backend)
    from engines.torch_engine.backend import torch_backend

    return torch_backend(engine, services, _later(topology, engine))


def _simulated(_topology: Topology, engine: EngineSpec, services: Services) -> Backend:
    from engines.simulated import simulated_backend

    return simulated_backend(engine, services)


def _vllm(topology: Topology, engine: EngineSpec, services: Services) -> Backend:
    _require(engine)
    from engines.vllm_engine.backend import vllm_backend

    return vllm_backend(engine, services, rank_of(topology, engine))


def _transformers(topology: Topology, engine: EngineSpec, services: Services) -> Backend:
    from engines.transformers_engine.versions import installed_transformers

    version = installed_transformers()  # says what is missing, where the next line would fail
    from engines.transformers_engine.backend import transformers_backend

    return transformers_backend(engine, services, _later(topology, engine), version)


BACKENDS: Mapping[str, MakeBackend] = {
    "torch": _torch,
    "vllm": _vllm,
    "transformers": _transformers,
    "simulated": _simulated,
}
