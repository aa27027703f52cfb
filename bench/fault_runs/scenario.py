"""What happens in one run: topology, policy, load, faults and orders, all drawn from the seed.

Runs are small, so that many can be made: a few engines and a dozen requests over some seconds, with pools that may be
scarce. All faults end; engines and gateways that die come back, so that each request that was accepted can be answered.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from random import Random
from typing import TypeVar

from bench.fault_runs.orders import (
    Drain,
    FallBehind,
    Leave,
    Move,
    Order,
    Retire,
    RetireGateway,
    Shed,
    SwitchPolicy,
    TakeRole,
)
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import (
    EngineSpec,
    GatewaySpec,
    PlacementSpec,
    PolicySpec,
    Rescheduling,
    ServiceSpec,
    Slo,
    Timing,
    Topology,
    TransferSpec,
)
from mesh.wire.control import PolicyChoice, Role
from mesh.wire.status import DecodeCost, PrefillCost
from router.policies.registry import policies
from simulation.engines.physics import Physics
from simulation.faults.faults import (
    Delay,
    Duplicate,
    FailLoad,
    FailSteps,
    Fault,
    Hang,
    Kill,
    Loss,
    Partition,
    Reorder,
    Skew,
    Slow,
    Stall,
)
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import structured

DURATION_S = 3.0  # of arrivals; faults begin then, too
BLOCK_TOKENS = 16
KV_BYTES_PER_TOKEN = 4096
TRANSFER_S = 2.0  # deadline of a transfer
LOAD_S = 0.4  # for weights to come
WEIGHT_BYTES = 2**30
LONG_S = 30.0  # that an engine or gateway is gone, and the others have to do
RARE = ("death", "gateway")  # once at most
KINDS = (
    *("kill", "death", "hang", "slow", "partition", "loss", "delay", "duplicate", "reorder", "skew", "gateway"),
    *("fail_load", "daemon", "stall", "fail_steps"),
)
SUPERVISED = 0.75  # of all runs
MOST_DEATHS = 4  # `DispatchLimits.max_deaths`
DEATHS = {Kill: 1, Hang: 1, Stall: 1, FailSteps: 2}  # of engines, as their gateways see it, from one fault at most
ORDERS = (
    *("move", "drain", "role", "retire", "leave", "rescheduling", "shed", "placement"),
    *("policy", "behind", "retire_gateway"),
)

T = TypeVar("T")


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
        """What all requests take one after the other: where memory is scarce, it comes to that."""
        cost = self.profile
        prefills_s = sum(prefill_s(cost.prefill, request.num_input) for request in self.trace)
        return prefills_s + sum(decode_step_s(cost.decode, 1, 0) * self._num_steps(request) for request in self.trace)

    def _num_steps(self, request: TraceRequest) -> float:
        """Decode steps that an answer takes: those whose mask is late sample nothing."""
        return request.num_output / (1 - self.physics.late_masks * request.is_structured)

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
        for index in range(len(self.faults)):
            yield replace(self, faults=_without(self.faults, index))
        for index in range(len(self.orders)):
            yield replace(self, orders=_without(self.orders, index))
        for index in range(len(self.trace)):
            yield replace(self, trace=_without(self.trace, index))


def draw(seed: int, only: Iterable[str] = (*KINDS, *ORDERS)) -> Scenario:
    """The scenario of a seed. With ``only``, no other kinds of faults and orders than these happen."""
    random, kinds = Random(f"{seed}/scenario"), frozenset(only)
    topology = _topology(random)
    engines = [spec.id for spec in topology.engines]
    gateways = [spec.id for spec in topology.gateways]
    services = [service.name for service in topology.services]
    faults = [fault for kind, fault in _faults(random, engines, gateways) if kind in kinds]
    orders = [order for kind, order in _orders(random, engines) if kind in kinds]
    loads = Random(f"{seed}/loads")
    if "shed" in kinds:
        orders += _sheds(loads, engines, services)
    if "fail_load" in kinds:
        faults += _failing_loads(loads, engines)
    steps = Random(f"{seed}/steps")
    faults += [fault for kind, fault in _bad_steps(steps, engines) if kind in kinds]
    plans = Random(f"{seed}/placement")
    if "placement" in kinds and (placement := _placement(plans)) is not None:
        topology = replace(topology, placement=placement)
        if "daemon" in kinds:
            faults += _daemon_faults(plans, placement.id, engines + gateways)
    if "rescheduling" in kinds:
        topology = replace(topology, rescheduling=_rescheduling(Random(f"{seed}/rescheduling")))
    orders += [order for kind, order in _gateway_orders(Random(f"{seed}/gateways"), gateways) if kind in kinds]
    trace = tuple(_trace(random, services))
    masks = Random(f"{seed}/masks")
    trace = tuple(structured(trace, masks.choice([0.0, 0.0, 0.3, 1.0]), masks))
    physics = Physics(
        latency_s=random.choice([2e-4, 2e-3, 0.02]),
        kv_bytes_per_s=random.choice([25e9, 20e6, 4e6]),
        noise=random.choice([0.0, 0.1]),
        late_masks=masks.choice([0.0, 0.1, 0.5]),
    )
    num_blocks = random.choice([54, 64, 100, 400])
    has_supervisors = Random(f"{seed}/supervisors").random() < SUPERVISED
    return Scenario(seed, topology, num_blocks, trace, tuple(faults), tuple(orders), physics, has_supervisors)


# --- what is served ---------------------------------------------------------------------------------------------------


def _topology(random: Random) -> Topology:
    roles = random.choice(
        [
            (Role.MULTIPLEX, Role.MULTIPLEX),
            (Role.PREFILL, Role.DECODE),
            (Role.MULTIPLEX,) * 3,
            (Role.PREFILL, Role.MULTIPLEX, Role.MULTIPLEX),
            (Role.PREFILL, Role.PREFILL, Role.DECODE, Role.MULTIPLEX),
        ]
    )
    max_running, max_waiting = random.choice([4, 16]), random.choice([3, 64])
    services = tuple(
        ServiceSpec(name, "model", Slo(random.choice([1.0, 5.0]), random.choice([0.1, 0.3])))
        for name in ("chat", "code")[: random.choice([1, 1, 1, 2])]
    )
    names = tuple(service.name for service in services)
    return Topology(
        "faults",
        Path("faults.toml"),
        services,
        tuple(
            EngineSpec(
                f"{role}-{number}",
                role,
                names,
                block_size=BLOCK_TOKENS,
                max_running=max_running,
                max_waiting=max_waiting,
                chunk_tokens=random.choice([128, 512]),
            )
            for number, role in enumerate(roles)
        ),
        tuple(
            GatewaySpec(f"gateway-{number}", max_requests=random.choice([8, 64]), max_waiting=random.choice([4, 64]))
            for number in range(random.choice([1, 2]))
        ),
        policy=PolicySpec(random.choice(sorted(policies()))),
        transfer=TransferSpec(deadline_s=TRANSFER_S),
        timing=Timing(),
    )


def _rescheduling(random: Random) -> Rescheduling | None:
    """Thresholds so high that engines of some hundred tokens move requests at all."""
    if random.random() < 0.5:
        return None
    give_below = random.choice([64.0, 256.0])
    return Rescheduling(give_below=give_below, take_above=2 * give_below, rest_s=random.choice([0.2, 1.0]))


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


# --- what goes wrong --------------------------------------------------------------------------------------------------


def _faults(random: Random, engines: Sequence[str], gateways: Sequence[str]) -> Iterator[tuple[str, Fault]]:
    """Some of some kinds."""
    processes = [*engines, *gateways]

    def moment() -> float:
        return random.uniform(0, DURATION_S)

    def some() -> tuple[str, ...]:
        return tuple(random.sample(processes, random.randint(1, 2)))

    def when() -> tuple[float, float]:
        return moment(), random.choice([0.1, 1.0, 3.0])

    def any_of(*values: float) -> float:
        return random.choice(values)

    makers: dict[str, Callable[[], Fault]] = {
        "kill": lambda: Kill(random.choice(engines), moment(), any_of(0.001, 0.05, 0.5, 1.5, 3.0)),
        "death": lambda: Kill(random.choice(engines), moment(), LONG_S),
        "hang": lambda: Hang(random.choice(processes), moment(), any_of(0.05, 0.5, 1.5, 3.0)),
        "slow": lambda: Slow(random.choice(engines), any_of(3.0, 20.0), *when()),
        "partition": lambda: Partition(some(), some(), moment(), any_of(0.1, 0.9, 1.1, 3.0)),
        "loss": lambda: Loss(any_of(0.01, 0.1, 1.0), some(), some(), *when()),
        "delay": lambda: Delay(any_of(0.03, 0.3, 1.5), some(), some(), *when()),
        "duplicate": lambda: Duplicate(any_of(0.05, 0.5), some(), some(), *when(), any_of(0.05, 1.0, 4.0)),
        "reorder": lambda: Reorder(any_of(0.05, 0.3), some(), some(), *when(), any_of(0.05, 0.5, 2.0)),
        "skew": lambda: Skew(random.choice(engines), any_of(0.7, 1000.0)),
        "gateway": lambda: Kill(random.choice(gateways), moment(), any_of(0.001, 0.5, 2.0, LONG_S)),
    }
    for kind, make in makers.items():
        for _ in range(random.choice([0, 0, 0, 1] if kind in RARE else [0, 0, 0, 1, 2, 4])):
            yield kind, make()


def _orders(random: Random, engines: Sequence[str]) -> Iterator[tuple[str, Order]]:
    def moment() -> float:
        return random.uniform(0, DURATION_S + 1)

    def engine() -> str:
        return random.choice(engines)

    for _ in range(random.choice([0, 10, 100])):
        yield "move", Move(moment(), engine(), random.random(), engine())
    for _ in range(random.choice([0, 0, 1, 2])):
        yield "drain", Drain(moment(), engine(), random.choice([0.2, 1.0, 3.0]))
    for _ in range(random.choice([0, 0, 1, 3])):
        yield "role", TakeRole(moment(), engine(), random.choice(list(Role)))
    for _ in range(random.choice([0, 0, 0, 1])):
        yield "retire", Retire(moment(), engine(), random.choice([0.05, 1.0]))
    for _ in range(random.choice([0, 0, 2, 8])):
        yield "leave", Leave(moment(), random.random())


def _gateway_orders(random: Random, gateways: Sequence[str]) -> Iterator[tuple[str, Order]]:
    def moment() -> float:
        return random.uniform(0, DURATION_S + 1)

    for _ in range(random.choice([0, 0, 1, 4])):
        choice = PolicyChoice(random.choice(sorted(policies())), {}, random.choice([1, 2, 3]))
        yield "policy", SwitchPolicy(moment(), random.choice(gateways), choice)
    for _ in range(random.choice([0, 0, 1, 3])):
        yield "behind", FallBehind(moment(), random.random())
    if random.random() < 0.2:
        yield "retire_gateway", RetireGateway(moment(), random.choice(gateways), random.choice([0.05, 1.0]))


def _placement(random: Random) -> PlacementSpec | None:
    """With intervals so short that plans change while requests run."""
    if random.random() < 0.6:
        return None
    return PlacementSpec(interval_s=0.5, shortest_s=0.3, longest_s=1.0, improve_s=0.1)


def _daemon_faults(random: Random, daemon: str, others: Sequence[str]) -> Iterator[Fault]:
    for _ in range(random.choice([0, 0, 1, 3])):
        yield Kill(daemon, random.uniform(0, DURATION_S + 1), random.choice([0.001, 0.3, 1.5]))
    for _ in range(random.choice([0, 0, 1])):
        yield Hang(daemon, random.uniform(0, DURATION_S), random.choice([0.5, 3.0]))
    for _ in range(random.choice([0, 0, 1])):
        yield Loss(random.choice([0.1, 0.5]), (daemon,), tuple(others), random.uniform(0, DURATION_S), 2.0)


def _sheds(random: Random, engines: Sequence[str], services: Sequence[str]) -> list[Order]:
    return [
        Shed(
            random.uniform(0, DURATION_S),
            random.choice(engines),
            random.choice(services),
            random.choice([0.1, 0.6, 3.0]),
            LOAD_S,
        )
        for _ in range(random.choice([0, 0, 1, 3, 6]))
    ]


def _failing_loads(random: Random, engines: Sequence[str]) -> list[Fault]:
    return [
        FailLoad(random.choice(engines), random.choice([0.3, 1.0]), random.uniform(0, DURATION_S), 2.0)
        for _ in range(random.choice([0, 0, 1]))
    ]


def _bad_steps(random: Random, engines: Sequence[str]) -> Iterator[tuple[str, Fault]]:
    for _ in range(random.choice([0, 0, 0, 1])):
        yield "stall", Stall(random.choice(engines), random.uniform(0, DURATION_S), random.choice([2.0, 4.0]))
    for _ in range(random.choice([0, 0, 0, 1])):
        probability, for_s = random.choice([0.05, 0.3, 1.0]), random.choice([0.5, 2.0])
        yield "fail_steps", FailSteps(random.choice(engines), probability, random.uniform(0, DURATION_S), for_s)


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


def _without(items: tuple[T, ...], index: int) -> tuple[T, ...]:
    return items[:index] + items[index + 1 :]
