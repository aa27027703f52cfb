"""Models what a simulated engine has loaded, as `engines.loading.Loaded` has it on real ones."""

from random import Random

from engines.costs.learning import LearntCost
from engines.costs.profiles import EngineProfile
from engines.effects import LoadAdapter, Loading, LoadModel, StageModel
from engines.memory.packed_pool import block_pool
from engines.memory.pages import PagePool
from engines.memory.staging_room import StagingRoom
from engines.memory.weight_room import WeightRoom
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.service import Service
from engines.scheduling.step import Step
from engines.speculation.drafting import loads_of
from engines.speculation.methods import speculation_of
from kvtransfer.layout import block_bytes, page_bytes
from kvtransfer.protocol import TransferLimits
from kvtransfer.tiers.block_file import space_of
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, Topology
from mesh.transports import NIXL
from mesh.wire.transfers import KVShape, MemoryRef, NixlRef
from simulation.engines.drafts import modelled_lookup
from simulation.engines.physics import Physics
from simulation.engines.servers import context_of, plans_ahead, request_s
from simulation.engines.shared_profiles import Profile, SharedProfile, profile_of
from simulation.engines.steps import StepModel
from simulation.engines.tiers import HostTiers, SimulatedTiers
from simulation.engines.transfer_times import CopyModel

MAX_CONTEXT = 2**31


class SimulatedModels:
    """Services share the engine's KV memory by the page, as those of real ones do: pages are made for all ``loadable``.

    ``steps``, ``copies`` and ``offloading`` are models of how long it takes, by service. They come and go with those.
    ``host_tiers``: of all engines of the host; None: there are no KV tiers.
    """

    def __init__(
        self,
        topology: Topology,
        spec: EngineSpec,
        profile: Profile,
        physics: Physics,
        random: Random,
        host_tiers: HostTiers | None = None,
    ) -> None:
        self.services: dict[str, Service] = {}
        self.steps: dict[str, StepModel] = {}
        self.copies: dict[str, CopyModel] = {}
        self.offloading: dict[str, CopyModel] = {}  # to the host's memory, or back
        self.tiers: dict[str, SimulatedTiers] = {}  # what services have in the KV tiers of the host
        self.loadable = loadable(topology, profile)
        self._topology = topology
        self._spec = spec
        self._profile = profile
        self._physics = physics
        self._random = random
        self._host_tiers = host_tiers if spec.prefix_caching and not spec.scheduling.is_static else None
        self.request_s = request_s(spec, profile)  # of each request, before it is here
        self.plans_ahead = plans_ahead(spec, profile)
        self._pace = 1.0
        self._page_bytes = page_bytes({block_bytes(self._shape(name)) for name in {*self.loadable, *spec.services}})
        num_pages = profile.kv_memory_bytes // self._page_bytes
        if num_pages < 1:
            raise UserError(f"engines.{spec.id}: its KV memory holds no block of {spec.block_size} tokens")
        self._pages = PagePool(num_pages)
        self._room, self._staging_room = WeightRoom(spec), StagingRoom(spec)
        self._staged: set[str] = set()  # services whose weights are in the host's memory
        for name in spec.services:
            self.open(name)

    def __repr__(self) -> str:
        return f"<SimulatedModels {sorted(self.services)} of {sorted(self.loadable)}>"

    @property
    def late_masks(self) -> float:
        """The probability that the mask of a structured request's next token is late."""
        return self._physics.late_masks

    @property
    def forced_tokens(self) -> float:
        """The probability that a structured answer's next token is the only one that its grammar allows."""
        return self._physics.forced_tokens

    @property
    def draft_acceptance(self) -> float:
        """The probability that a draft is right if those before it are, mean over requests."""
        return self._physics.draft_acceptance

    def drafting_s(self, step: Step) -> list[float]:
        """Return the seconds of each step of the draft model before a step."""
        drafting = step.drafting()
        return [self.steps[drafting[0].service].elapsed_s(load) for load in loads_of(drafting)]

    def load_s(self, job: Loading) -> float:
        """Return the seconds for the weights of a service to come, by the device's link if they are staged, or for an
        adapter.
        """
        if isinstance(job, LoadAdapter):
            return self._adapter_s(job)
        if job.service not in self._staged:
            return weights_s(self._profile, job.service, self._physics)
        profile = profile_of(self._profile, job.service)
        return profile.weight_bytes / (self._physics.host_bytes_per_s * profile.num_devices)

    def take(self, job: Loading) -> Service | int:
        """Note that it has come. Return the service that is open now, or the bytes of what else it is. Raise
        `UserError` if there is no room for it.
        """
        match job:
            case LoadModel(name):
                return self.open(name)
            case StageModel(name):
                num_bytes = profile_of(self._profile, name).weight_bytes
                self._staging_room.take(name, num_bytes)
                self._staged.add(name)
                return num_bytes
            case LoadAdapter():
                return job.num_bytes

    def unstage(self, name: str) -> None:
        """Forget them, if they are there."""
        self._staged.discard(name)
        self._staging_room.give_back(name)

    def _adapter_s(self, order: LoadAdapter) -> float:
        """As those of weights."""
        profile = profile_of(self._profile, order.service)
        return order.num_bytes / (self._physics.weight_bytes_per_s or profile.weight_bytes_per_s)

    def num_tokens(self, name: str) -> int:
        """Return the tokens that KV memory holds, if the service has all of it."""
        return self._pages.num_pages * (self._page_bytes // block_bytes(self._shape(name))) * self._spec.block_size

    @property
    def _memory(self) -> MemoryRef:
        """What peers are told of the KV memory, which does not exist."""
        spec = self._spec
        nixl = NixlRef(b"", 0, 0) if self._topology.transfer.transport == NIXL else None
        return MemoryRef(spec.host, spec.id, self._profile.kv_memory_bytes, spec.id, nixl=nixl)

    def open(self, name: str) -> Service:
        """Open a service whose weights are here, again if it lacked them. Raise `UserError` if there is no room for
        them.
        """
        profile = profile_of(self._profile, name)
        self._room.take(name, profile.weight_bytes)
        self.unstage(name)
        if name in self.services:
            return self.services[name]
        shape, cost = self._shape(name), profile.cost
        spec = self._topology.service(name)
        pools = spec.pools
        slots, quota = self._page_bytes // block_bytes(shape), self._spec.kv_quotas.get(name)
        pool = block_pool(self._pages, self._spec.block_size, slots, quota=quota)
        if self._host_tiers is not None:
            space = space_of(name, "", "", shape)
            self.tiers[name] = SimulatedTiers(self._host_tiers, space, block_bytes(shape), profile.num_devices)
        service = self.services[name] = Service(
            ServiceQueue(name, pool),
            shape,
            self._memory,
            frozenset(),
            context_of(spec, profile) or MAX_CONTEXT,
            LearntCost(cost.in_chunks(0 if pools else self._spec.chunk_tokens)),
            weight_bytes=profile.weight_bytes,
            pools=pools,
            whole_prompts=pools,  # as of most models that do
            tiers=self.tiers.get(name),
            speculation=speculation_of(spec, self.services, modelled_lookup),
        )
        steps = self.steps[name] = StepModel(cost, self._physics, self._random)
        steps.pace = self._pace
        self.copies[name] = self._copies(shape, self._physics.kv_bytes_per_s)
        self.offloading[name] = self._copies(shape, self._physics.host_bytes_per_s * profile.num_devices)
        return service

    def drop_weights(self, name: str) -> None:
        """No step computes it until it is opened again."""
        self._room.give_back(name)

    def drop(self, name: str) -> None:
        """Nothing of it is left in the engine's core."""
        del self.services[name], self.steps[name], self.copies[name], self.offloading[name]
        self.tiers.pop(name, None)
        self._room.give_back(name)

    def set_pace(self, pace: float) -> None:
        """Steps take so many times as long as modelled, from the next one on."""
        self._pace = pace
        for model in self.steps.values():
            model.pace = pace

    def _copies(self, shape: KVShape, bytes_per_s: float) -> CopyModel:
        limits = TransferLimits()
        return CopyModel(
            block_bytes(shape),
            bytes_per_s=bytes_per_s,
            message_s=self._physics.kv_message_s,
            message_bytes=limits.message_bytes,
            window=limits.window,
            round_trip_s=2 * self._physics.latency_s,
        )

    def _shape(self, name: str) -> KVShape:
        return _shape(profile_of(self._profile, name), self._spec.block_size)


def weights_s(profile: Profile, service: str, physics: Physics) -> float:
    """Return the seconds for weights to come: each device fetches its part. They take no time where it is not known how
    many.
    """
    of_service = profile_of(profile, service)
    bytes_per_s = physics.weight_bytes_per_s or of_service.weight_bytes_per_s
    return of_service.weight_bytes / (bytes_per_s * of_service.num_devices)


def loadable(topology: Topology, profile: Profile) -> frozenset[str]:
    """The services that an engine with this profile may be told to load: those that have costs there."""
    known = (service.name for service in topology.services)
    return frozenset(name for name in known if not isinstance(profile, SharedProfile) or name in profile.services)


def _shape(profile: EngineProfile, block_size: int) -> KVShape:
    """Any shape whose tokens have the profile's size: one head of one layer, K and V of two bytes an element."""
    return KVShape(1, 1, max(1, profile.kv_bytes_per_token // 4), block_size, "float16")
