"""What happens in one run: topology, policy, load, faults and orders, all drawn from the seed.

Runs are small, so that many can be made: a few engines and a dozen requests over some seconds, with pools that may be
scarce, so that each request that was accepted can be answered.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from random import Random

from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.profiles import EngineProfile
from mesh.rules import DraftMethod, Lateness, Trigger
from mesh.topology.schema import (
    WHOLE_PROMPTS,
    EngineSpec,
    GatewaySpec,
    PlacementSpec,
    PolicySpec,
    Rescheduling,
    Scheduling,
    ServiceSpec,
    Slo,
    Topology,
    TransferSpec,
)
from mesh.topology.stores import KVTiersSpec
from mesh.topology.timing import SMALL_MESH, Timing
from mesh.wire.control import Role
from mesh.wire.requests import PRIORITY_BATCH
from mesh.wire.status import DecodeCost, PrefillCost
from router.policies.registry import policies
from simulation.engines.physics import Physics
from simulation.faults.faults import Delay, Duplicate, FailSteps, Fault, Hang, Kill, Reorder, Skew, Stall
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import structured
from tests.tools.fault_runs.adapters import SMALL_BYTES, write_small
from tests.tools.fault_runs.draws import DURATION_S, KINDS, LONG_S, ORDERS, Draw, draw_all
from tests.tools.fault_runs.fleets import WEIGHT_BYTES, with_scaling, with_spans, with_swaps
from tests.tools.fault_runs.orders import LOAD_S, Order

BLOCK_TOKENS = 16
KV_BYTES_PER_TOKEN = 4096
WINDOW_S = 86_400.0  # of a batch
TRANSFER_S = 2.0  # deadline of a transfer
SUPERVISED = 0.75  # of all runs
FLIPPING = ("elastic", "foresight", "tropical")  # policies that may flip roles
MOST_DEATHS = 4  # `DispatchLimits.max_deaths`
DEATHS = {Kill: 1, Hang: 1, Stall: 1, FailSteps: 2}  # of engines, as their gateways see it, from one fault at most
ROLES = (
    (Role.MULTIPLEX, Role.MULTIPLEX),
    (Role.PREFILL, Role.DECODE),
    (Role.MULTIPLEX,) * 3,
    (Role.PREFILL, Role.MULTIPLEX, Role.MULTIPLEX),
    (Role.PREFILL, Role.PREFILL, Role.DECODE, Role.MULTIPLEX),
)


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    topology: Topology
    num_blocks: int  # of each engine
    trace: tuple[TraceRequest, ...]
    faults: tuple[Fault, ...]
    orders: tuple[Order, ...]
    physics: Physics
    has_supervisors: bool = True  # that tell of processes which end; else nobody knows but by their silence

    @property
    def service(self) -> str:
        return self.topology.services[0].name

    @property
    def profile(self) -> EngineProfile:
        """Of every engine: fast prefills, and decode steps long enough that little happens in a second."""
        memory = self.num_blocks * BLOCK_TOKENS * KV_BYTES_PER_TOKEN * len(self.topology.services)
        prefill, decode = PrefillCost(0.02, 4e-4, 1e-8), DecodeCost(0.05, 1e-3, 1e-6)
        profile = EngineProfile("small", prefill, decode, KV_BYTES_PER_TOKEN, memory, "made up")
        return replace(profile, weight_bytes=WEIGHT_BYTES, weight_bytes_per_s=WEIGHT_BYTES / LOAD_S)

    @property
    def work_s(self) -> float:
        """What all requests take one after the other: where memory is scarce, it comes to that.

        Decode steps whose mask is late sample nothing.
        """
        cost, step_s, late = self.profile, decode_step_s(self.profile.decode, 1, 0), self.physics.late_masks
        prefills_s = sum(prefill_s(cost.prefill, one.num_input) for one in self.trace)
        return prefills_s + sum(step_s * (one.num_output / (1 - late * one.is_structured)) for one in self.trace)

    @property
    def calm_at_s(self) -> float:
        """From when on nothing goes wrong any more, in seconds of the trace."""
        return max([0.0, *map(_end, self.faults), *(order.end_s for order in self.orders)])

    def has(self, *kinds: type) -> bool:
        return any(isinstance(fault, kinds) for fault in self.faults)

    @property
    def is_somebody_gone(self) -> bool:
        """For long, while others have to do."""
        return any(isinstance(fault, Kill) and fault.restart_after_s == LONG_S for fault in self.faults)

    @property
    def may_give_up(self) -> bool:
        """Whether so many engines may die under a request that its gateway thinks that it is to blame."""
        return sum(DEATHS.get(type(fault), 0) for fault in self.faults) > MOST_DEATHS

    def smaller(self) -> "Iterator[Scenario]":
        """This one without one of its faults, orders, or requests."""
        for name in ("faults", "orders", "trace"):
            items = getattr(self, name)
            for index in range(len(items)):
                yield replace(self, **{name: items[:index] + items[index + 1 :]})


def _end(fault: Fault) -> float:
    match fault:
        case Kill(at_s=at_s, restart_after_s=restart_after_s):
            return at_s if restart_after_s in (None, LONG_S) else at_s + restart_after_s
        case Skew():
            return 0.0
        case Delay(up_to_s=late_s) | Duplicate(late_s=late_s) | Reorder(late_s=late_s):
            return fault.at_s + fault.for_s + late_s
        case _:
            return fault.at_s + fault.for_s if fault.for_s < inf else 0.0


def draw(seed: int, only: Iterable[str] = (*KINDS, *ORDERS), among: Sequence[str] = ()) -> Scenario:
    """The scenario of a seed. With ``only``, no other kinds of faults and orders than these happen.

    Policies are drawn ``among`` all that there are, or those that are named: then a new one changes nothing.
    """
    names = among or sorted(policies())
    random, kinds, plans = Random(f"{seed}/scenario"), frozenset(only), Random(f"{seed}/placement")
    topology = _topology(random, names)
    if "placement" in kinds and plans.random() >= 0.6:  # with intervals so short that plans change while requests run
        placement = PlacementSpec(interval_s=0.5, shortest_s=0.3, longest_s=1.0, improve_s=0.1)
        topology = replace(topology, placement=placement)
    if "rescheduling" in kinds:
        topology = replace(topology, rescheduling=_rescheduling(Random(f"{seed}/rescheduling")))
    if "late" in kinds:
        topology = replace(topology, services=tuple(_with_lateness(topology.services, Random(f"{seed}/late"))))
    if "drafts" in kinds:
        topology = replace(topology, services=tuple(_with_drafts(topology.services, Random(f"{seed}/drafts"))))
    if "pace" in kinds:
        topology = replace(topology, timing=_timing(Random(f"{seed}/pace")))
    if "flips" in kinds and topology.policy.name in FLIPPING and Random(f"{seed}/flips").random() < 0.5:
        topology = replace(topology, policy=PolicySpec(topology.policy.name, {"flips": True}))
    if "disciplines" in kinds:
        topology = _with_disciplines(topology, Random(f"{seed}/disciplines"))
    if "swaps" in kinds and len(topology.services) > 1 and topology.placement is not None:
        topology = with_swaps(topology, Random(f"{seed}/swaps"))
    if "spans" in kinds and topology.placement is not None:
        topology = with_spans(topology, Random(f"{seed}/spans"))
    if "scaling" in kinds and not any(spec.spans for spec in topology.engines):  # two rules would start those
        topology = with_scaling(topology, Random(f"{seed}/scaling"))
    if "slices" in kinds:
        topology = _with_slices(topology, Random(f"{seed}/slices"))
    if "tiers" in kinds:
        topology = replace(topology, kv_tiers=_tiers(Random(f"{seed}/tiers")))
    if "adapters" in kinds:
        topology = _with_adapters(topology, Random(f"{seed}/adapters"))
    services = [service.name for service in topology.services]
    engines, gateways = [spec.id for spec in topology.engines], [spec.id for spec in topology.gateways]
    daemon = topology.placement.id if topology.placement else ""
    things = draw_all(seed, Draw(random, engines, gateways, services, names, daemon), kinds, plans)
    if any(spec.weight_memory_bytes is not None for spec in topology.engines):  # what leaves may not fit any more
        things = [thing for thing in things if not (isinstance(thing, Order) and thing.kind in ("shed", "pause"))]
    trace, masks = _with_services(_trace(random, services), topology, seed), Random(f"{seed}/masks")
    if topology.kv_tiers is not None:
        trace = _with_beginnings(trace, Random(f"{seed}/beginnings"))
    if "fillers" in kinds:
        trace = _with_fillers(trace, Random(f"{seed}/fillers"))
    return Scenario(
        seed,
        topology,
        trace=tuple(structured(trace, masks.choice([0.0, 0.0, 0.3, 1.0]), masks)),
        physics=Physics(
            latency_s=random.choice([2e-4, 2e-3, 0.02]),
            kv_bytes_per_s=random.choice([25e9, 20e6, 4e6]),
            noise=random.choice([0.0, 0.1]),
            late_masks=masks.choice([0.0, 0.1, 0.5]),
            draft_acceptance=Random(f"{seed}/acceptance").choice([0.0, 0.5, 0.9, 1.0]),
            boot_s=0.5,
        ),
        num_blocks=random.choice([54, 64, 100, 400]),
        faults=tuple(thing for thing in things if not isinstance(thing, Order)),
        orders=tuple(thing for thing in things if isinstance(thing, Order)),
        has_supervisors=Random(f"{seed}/supervisors").random() < SUPERVISED,
    )


def _topology(random: Random, policy_names: Sequence[str]) -> Topology:
    roles = random.choice(ROLES)
    max_running, max_waiting = random.choice([4, 16]), random.choice([3, 64])
    services = tuple(
        ServiceSpec(name, "model", Slo(random.choice([1.0, 5.0]), random.choice([0.1, 0.3])))
        for name in ("chat", "code")[: random.choice([1, 1, 1, 2])]
    )
    names = tuple(service.name for service in services)
    least = EngineSpec("", Role.MULTIPLEX, names, block_size=BLOCK_TOKENS, max_running=max_running)
    engines = tuple(
        replace(
            least, id=f"{role}-{number}", role=role, max_waiting=max_waiting, chunk_tokens=random.choice([128, 512])
        )
        for number, role in enumerate(roles)
    )
    gateways = tuple(
        GatewaySpec(f"gateway-{number}", max_requests=random.choice([8, 64]), max_waiting=random.choice([4, 64]))
        for number in range(random.choice([1, 2]))
    )
    policy, transfer = PolicySpec(random.choice(policy_names)), TransferSpec(deadline_s=TRANSFER_S)
    path = Path("faults.toml")
    return Topology("faults", path, services, engines, gateways, policy=policy, transfer=transfer, timing=Timing())


def _with_disciplines(topology: Topology, random: Random) -> Topology:
    """In half the runs, engines with one discipline or several."""
    if random.random() < 0.5:
        return topology
    is_split = any(one.role is not Role.MULTIPLEX for one in topology.engines)
    speculates = any(service.speculation is not None for service in topology.services)
    known = [one for one in Scheduling if not (one.is_static and (is_split or speculates))]
    drawn = random.sample(known, random.choice([1, 1, 2]))
    starvation_s = random.choice([None, 0.5])
    engines = [
        replace(
            one,
            scheduling=random.choice(drawn),
            starvation_s=starvation_s,
            strict_phases=random.random() < 0.2,
            migrates_on_drain=random.random() < 0.8,
        )
        for one in topology.engines
    ]
    engines = [
        replace(one, chunk_tokens=WHOLE_PROMPTS) if one.scheduling is Scheduling.PADDED else one for one in engines
    ]
    return replace(topology, engines=tuple(engines))


def _with_slices(topology: Topology, random: Random) -> Topology:
    """In half the runs, engines that grant memory slice by slice, with much or little of the host's."""
    if random.random() < 0.5:
        return topology
    num_tokens, num_blocks = random.choice([8, 24, 64]), random.choice([0, 20, 10**4])
    memory = num_blocks * BLOCK_TOKENS * KV_BYTES_PER_TOKEN
    engines = [
        replace(one, slice_tokens=num_tokens, offload_memory_bytes=memory)
        if random.random() < 0.8 and not one.scheduling.is_static
        else one
        for one in topology.engines
    ]
    return replace(topology, engines=tuple(engines))


def _with_adapters(topology: Topology, random: Random) -> Topology:
    """In half the runs, services that are adapters of the first one, and room for one of them or for both."""
    if random.random() < 0.5:
        return topology
    base, room = topology.services[0], random.choice([1, 2])
    names = ("law", "sql")
    folders = [write_small(name) for name in names]
    adapters = tuple(
        replace(base, name=name, base=base.name, adapter=folder) for name, folder in zip(names, folders, strict=True)
    )
    engines = tuple(replace(spec, adapter_memory_bytes=room * SMALL_BYTES) for spec in topology.engines)
    return replace(topology, adapters=adapters, engines=engines)


def _tiers(random: Random) -> KVTiersSpec | None:
    """In half the runs, KV tiers with much or little room, and mostly engines that pull from each other."""
    if random.random() < 0.5:
        return None
    host, disk = (num_blocks * BLOCK_TOKENS * KV_BYTES_PER_TOKEN for num_blocks in (random.choice([1, 30, 10**4]), 60))
    return KVTiersSpec(host, disk_bytes=disk if random.random() < 0.3 else 0, peers=random.random() < 0.8)


def _with_beginnings(trace: Sequence[TraceRequest], random: Random) -> tuple[TraceRequest, ...]:
    """Most prompts begin like others."""
    share = random.choice([0.5, 1.0])
    return tuple(replace(one, blocks=(1,)) if random.random() < share else one for one in trace)


def _with_services(trace: Iterable[TraceRequest], topology: Topology, seed: int) -> tuple[TraceRequest, ...]:
    """Some requests of the base are of an adapter."""
    random, names = Random(f"{seed}/adapted"), [adapter.name for adapter in topology.adapters]
    base = topology.services[0].name
    return tuple(
        replace(one, service=random.choice([base, *names])) if names and one.service == base else one for one in trace
    )


def _with_fillers(trace: Sequence[TraceRequest], random: Random) -> tuple[TraceRequest, ...]:
    """In some runs, some requests are lines of batches: they have the lowest priority, and wait for a day."""
    share = random.choice([0.0, 0.0, 0.3, 0.8])
    lines = {"priority": PRIORITY_BATCH, "slo_ttft_s": WINDOW_S, "slo_tpot_s": WINDOW_S}
    return tuple(replace(one, **lines) if random.random() < share else one for one in trace)  # type: ignore[arg-type]


def _rescheduling(random: Random) -> Rescheduling | None:
    """Thresholds so high that engines of some hundred tokens move requests at all."""
    if random.random() < 0.5:
        return None
    give_below = random.choice([64.0, 256.0])
    rest_s = random.choice([0.2, 1.0])
    triggers = random.choice([Rescheduling().triggers, (Trigger.PROMISE, Trigger.ROLE), (Trigger.LOAD, Trigger.ROLE)])
    return Rescheduling(triggers=triggers, give_below=give_below, take_above=2 * give_below, rest_s=rest_s)


def _with_lateness(services: Iterable[ServiceSpec], random: Random) -> Iterator[ServiceSpec]:
    """Some would rather have late answers than none, and some the reverse."""
    for service in services:
        yield replace(service, late=random.choice([None, Lateness.SERVE, Lateness.REJECT]))


def _with_drafts(services: Iterable[ServiceSpec], random: Random) -> Iterator[ServiceSpec]:
    """In half the runs, some services speculate."""
    speculation = random.choice([None, DraftMethod.PROMPT_LOOKUP])
    for service in services:
        is_drafted = random.random() < 0.8
        yield replace(service, speculation=speculation if is_drafted else None, max_draft_tokens=random.randint(1, 7))


def _timing(random: Random) -> Timing:
    """Have processes speak as seldom as those of a mesh with so many, for most runs a small one."""
    return Timing.of(random.choice([SMALL_MESH, SMALL_MESH, 137, 529, 1158]), {})


def _trace(random: Random, services: Sequence[str]) -> Iterator[TraceRequest]:
    lengths = random.choice([(20, 200), (20, 600), (300, 700)])
    for at_s in sorted(random.uniform(0, DURATION_S) for _ in range(random.randint(4, 24))):
        num_output = random.choice([1, 3, 10, 20, 40, 60, 120])
        yield TraceRequest(
            at_s,
            random.randint(*lengths),
            num_output,
            random.choice([(), (), (1,)]),
            service=random.choice(services),
            priority=random.choice([0, 0, 0, 1]),
        )
