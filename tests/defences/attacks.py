"""What a defence has to withstand: runs with faults, in which an invariant breaks without it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mesh.topology.schema import PlacementSpec, PolicySpec
from mesh.topology.timing import Timing
from simulation.faults.faults import Duplicate, Kill, Loss
from simulation.faults.invariants import InvariantBounds
from tests.seeds import seeds
from tests.tools.fault_runs.draws import KINDS, LONG_S, ORDERS
from tests.tools.fault_runs.orders import Order
from tests.tools.fault_runs.play import bounds_of, play
from tests.tools.fault_runs.scenario import Scenario, draw

# Those that seeds were found with: a further policy or order does not change what they draw.
POLICIES = (
    *("chunked", "colocated", "disaggregated", "disaggregated_sjf", "elastic", "infaas", "join_shortest_queue"),
    *("least_loaded", "llumnix", "packing", "power_of_two", "round_robin", "slices", "tropical"),
)
ORDERS_THEN = tuple(order for order in ORDERS if order not in ("adapters", "fillers"))


def as_drawn(scenario: Scenario) -> Scenario:
    return scenario


def roomy(scenario: Scenario) -> Scenario:
    """No request has to wait for memory, nor for its turn: what takes long has another reason."""
    engines = tuple(replace(engine, max_running=64, max_waiting=64) for engine in scenario.topology.engines)
    return replace(scenario, num_blocks=1000, topology=replace(scenario.topology, engines=engines))


def unsupervised(scenario: Scenario) -> Scenario:
    """Nobody tells of processes that end."""
    return replace(roomy(scenario), has_supervisors=False)


def long_answers(scenario: Scenario) -> Scenario:
    return replace(roomy(scenario), trace=tuple(replace(request, num_output=200) for request in scenario.trace))


def busy(scenario: Scenario) -> Scenario:
    """All requests come at once, to engines of which few may wait, from a policy that sends them all."""
    engines = tuple(replace(engine, max_running=4, max_waiting=3) for engine in scenario.topology.engines)
    policy = PolicySpec("round_robin")
    trace = tuple(replace(request, at_s=0.0) for request in scenario.trace * 3)
    return replace(scenario, topology=replace(scenario.topology, engines=engines, policy=policy), trace=trace)


def crowded(scenario: Scenario) -> Scenario:
    """Most requests wait for a place on their engine for a while."""
    engines = tuple(replace(engine, max_running=2, max_waiting=64) for engine in scenario.topology.engines)
    topology = replace(scenario.topology, engines=engines, policy=PolicySpec("round_robin"))
    return replace(long_answers(scenario), topology=topology)


def queued(scenario: Scenario) -> Scenario:
    """As above, and for much longer than gateways bear silence."""
    crowd = crowded(scenario)
    return replace(crowd, topology=replace(crowd.topology, timing=Timing(stall_s=3.0)))


def lossy(scenario: Scenario) -> Scenario:
    """Every fifth word between engines is lost, for four seconds."""
    engines = tuple(engine.id for engine in scenario.topology.engines)
    return replace(roomy(scenario), faults=(*scenario.faults, Loss(0.2, engines, engines, 0.0, 4.0)))


def speechless(scenario: Scenario) -> Scenario:
    """Every twentieth word that tells of tokens is lost, until the answers have ended."""
    return _losing(long_answers(scenario), 0.05, "StepTokens")


def deaf(scenario: Scenario) -> Scenario:
    """Every second word that a request is not wanted any more is lost."""
    return _losing(long_answers(scenario), 0.5, "Cancel")


def _losing(scenario: Scenario, probability: float, message: str) -> Scenario:
    engines = tuple(engine.id for engine in scenario.topology.engines)
    gateways = tuple(gateway.id for gateway in scenario.topology.gateways)
    return replace(scenario, faults=(Loss(probability, engines, gateways, kinds=(message,)),))


def doubled(scenario: Scenario) -> Scenario:
    """Every second message comes again, up to three seconds later."""
    everybody = tuple(process.id for process in scenario.topology.processes)
    return replace(roomy(scenario), faults=(*scenario.faults, Duplicate(0.5, everybody, everybody, 0.0, 4.0, 3.0)))


def orphaned(scenario: Scenario) -> Scenario:
    """A gateway dies, then an engine; its next incarnation, which never heard the gateway, is to take over requests."""
    gateway, engines = scenario.topology.gateways[0].id, [engine.id for engine in scenario.topology.engines]
    faults = (Kill(gateway, 1.0, LONG_S), Kill(engines[-1], 1.05, 0.001))
    moves = tuple(Order(1.4 + 0.02 * n, "move", source, engines[-1]) for n in range(10) for source in engines[:-1])
    return replace(long_answers(scenario), faults=faults, orders=moves)


def unheard(scenario: Scenario) -> Scenario:
    """Every second order of a placement daemon is lost."""
    engines = tuple(engine.id for engine in scenario.topology.engines)
    daemon = PlacementSpec(interval_s=0.5, shortest_s=0.3, longest_s=1.0, improve_s=0.1)
    faults = (Loss(0.5, (daemon.id,), engines, kinds=("Announce", "LoadService", "UnloadService", "SetRole")),)
    return replace(roomy(scenario), topology=replace(scenario.topology, placement=daemon), faults=faults)


@dataclass(frozen=True)
class Runs:
    """Runs with these faults and orders alone. ``seeds`` are known to fail without the defence.

    As the product changes, other seeds may have to be found: up to ``num_more`` are tried after them. ``bounds`` are
    tighter than those of random runs.
    """

    only: Sequence[str] = (*KINDS, *ORDERS_THEN)
    seeds: Sequence[int] = ()
    change: Callable[[Scenario], Scenario] = as_drawn
    end_s: float | None = None
    gap_s: float | None = None
    gone_s: float | None = None
    num_more: int = 100

    def __call__(self) -> None:
        """Raise an AssertionError if a run fails."""
        for seed in (*self.seeds, *range(self.num_more)):
            self.run(seed)

    def known(self) -> None:
        """Raise an AssertionError if a known run fails: by day the first one is tried."""
        for seed in self.seeds[: len(seeds(1))]:
            self.run(seed)

    def run(self, seed: int) -> None:
        scenario = self.change(draw(seed, self.only, POLICIES))
        failure = play(scenario, bounds=self._bounds(scenario)).failure
        assert failure is None, failure

    def _bounds(self, scenario: Scenario) -> InvariantBounds:
        given = {"end_s": self.end_s, "gap_s": self.gap_s, "gone_s": self.gone_s}
        tighter = {name: value for name, value in given.items() if value is not None}
        return replace(bounds_of(scenario), **tighter)
