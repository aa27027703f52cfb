"""One run of a scenario: simulated, watched, and tallied."""

import re
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mesh.topology.timing import Timing
from router.history.records import Outcome, Record
from router.placement.daemon import Doing
from simulation.cluster import Simulation
from simulation.faults.faults import Duplicate, FailLoad, FailSteps, Hang
from simulation.faults.faulty_network import Tap
from simulation.faults.invariants import InvariantBounds, InvariantError, Invariants
from simulation.loads.workload import SloRule
from simulation.quiet import quiet_engines
from tests.tools.fault_runs.draws import LONG_S
from tests.tools.fault_runs.plans import DrawnPlans
from tests.tools.fault_runs.scenario import Scenario, draw

END_S = 8.0  # for a request, once all is well, beyond the time that one engine takes for all of them in turns
GONE_S = 4.0  # for what is left of a request on engines, with leases of a small mesh
LEASES = 2  # of a dead gateway, at most: that of an engine, and of one that a request moves to, which never heard it
DISPATCHES_PER_S = 8.0
PLAN_S = LONG_S + 20.0  # for the last plan, once all requests have ended: engines that are away hold it up
LOOK_S = 0.5
MAX_EVENTS = 300_000
CUT_OFF = "cut off: "  # its client read too slowly
GATEWAY_DIED = ("its gateway died", "no gateway was there")
NOT_LOADED = "its weights cannot be read"
NOT_COMPUTED = "the engine could not compute it"  # what it was alone in, twice
AGREE_S = 5.0  # for gateways to come to one policy, once nothing goes wrong
SHUT_DOWN = "the gateway shut down"
GIVEN_UP = "given up after"  # `DispatchLimits.max_deaths`


Tally = Counter[tuple[str, str]]  # by table and row
RUNS, FAULTS, ENDINGS = "runs with faults", "what went wrong", "how requests ended"
MIGRATIONS, SERVICES, TIERS, PLANS = "migrations", "services", "KV tiers", "plans"


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that broke an invariant, or broke off."""

    seed: int
    what: str
    request: str | None
    at_s: float
    trace: str  # of the stack

    def __str__(self) -> str:
        return f"seed {self.seed} failed at {self.at_s:.3f} s: {self.what}"

    @property
    def kind(self) -> str:
        """The same for failures that look alike."""
        return _alike(self.what.splitlines()[0])


Results = tuple[Tally, list[Failure]]


@dataclass(slots=True)
class Played:
    tally: Tally
    failure: Failure | None


def play(scenario: Scenario, tap: Tap | None = None, bounds: InvariantBounds | None = None) -> Played:
    """Run it. ``tap`` sees all messages. Nothing is raised for a broken invariant, nor for any other error."""
    invariants, plans = Invariants(bounds or bounds_of(scenario)), Tally()
    simulation = Simulation(
        scenario.topology,
        {spec.id: scenario.profile for spec in scenario.topology.engines},
        seed=scenario.seed,
        physics=scenario.physics,
        slo=SloRule(),
        faults=scenario.faults,
        invariants=invariants,
        has_supervisors=scenario.has_supervisors,
        search=DrawnPlans(scenario.seed),
        on_note=lambda _, note: plans.update([(PLANS, _alike(note.line))]),
    )
    assert simulation.processes is not None, "there are invariants to be watched"
    simulation.processes.network.tap = tap
    for order in scenario.orders:
        simulation.kernel.at(order.at_s, order.give, simulation)
    records: list[Record] = []
    failure = None
    try:
        with quiet_engines():
            simulation.run(scenario.service, scenario.trace, records.append)
            _check_endings(scenario, records)
            if scenario.topology.placement is not None:
                _check_plans(simulation)
            _check_policies(simulation)
    except Exception as error:
        request = error.request if isinstance(error, InvariantError) else None
        what = f"{type(error).__name__}: {error}"
        failure = Failure(scenario.seed, what, request, simulation.kernel.now, traceback.format_exc())
    return Played(_tally(simulation, invariants, records) + plans, failure)


def run_some(only: Sequence[str], seeds: Sequence[int]) -> Results:
    """For a pool of processes."""
    tally, failures = Tally(), []
    for seed in seeds:
        played = play(draw(seed, only))
        tally += played.tally
        if played.failure is not None:
            failures.append(played.failure)
    return tally, failures


def bounds_of(scenario: Scenario) -> InvariantBounds:
    held_up: dict[str, list[tuple[float, float]]] = {}
    for fault in scenario.faults:
        if isinstance(fault, Hang):
            held_up.setdefault(fault.process, []).append((fault.at_s, fault.at_s + fault.for_s))
    has_plans = scenario.topology.placement is not None  # one may leave a service to an engine that is gone
    away_s = LONG_S if has_plans and scenario.is_somebody_gone else 0.0
    lease_s = scenario.topology.timing.lease_s - Timing().lease_s  # longer than that of a small mesh by so much
    return InvariantBounds(
        calm_at_s=scenario.calm_at_s,
        end_s=END_S + scenario.work_s + away_s,
        gone_s=GONE_S + LEASES * lease_s,
        dispatches_per_s=DISPATCHES_PER_S,
        max_events=MAX_EVENTS,
        has_duplicates=scenario.has(Duplicate),
        held_up=held_up,
    )


def _check_endings(scenario: Scenario, records: Sequence[Record]) -> None:
    """Who may fail: requests of gateways that died, or that retired and waited in vain for one engine to do all the
    work, and those of which too many engines were silent.

    Who may be rejected: those that no engine had begun.
    """
    if len(records) != len(scenario.trace):
        raise InvariantError(f"{len(records)} of {len(scenario.trace)} requests ended")
    for record in records:
        reason = record.reason or ""
        is_excused = reason in GATEWAY_DIED or reason.startswith(CUT_OFF)
        is_excused |= reason.startswith(NOT_COMPUTED) and scenario.has(FailSteps)
        is_excused |= reason == NOT_LOADED and scenario.has(FailLoad)  # of its adapter
        is_excused |= reason.startswith(GIVEN_UP) and scenario.may_give_up
        is_excused |= reason.startswith(SHUT_DOWN) and scenario.work_s > scenario.topology.timing.drain_s
        if record.outcome is Outcome.FAILED and not is_excused:
            raise InvariantError(f"{record.id} failed: {reason}", record.id)
        if record.outcome is Outcome.REJECTED and record.partial_tokens:
            raise InvariantError(f"{record.id} was rejected in the middle of its answer: {record.reason}", record.id)


def _check_plans(simulation: Simulation) -> None:
    """The daemon wants no other plan any more: the last one is carried out or given up."""

    def is_listening() -> bool:
        return simulation.placement is not None and simulation.placement.daemon.doing is Doing.LISTENING

    if not _comes_true(simulation, is_listening, PLAN_S):
        raise InvariantError(f"a plan is under way for {PLAN_S:g} s: {simulation.placement}")


def _check_policies(simulation: Simulation) -> None:
    """All gateways that live come to run the same policy, whoever was told of another one."""
    gateways = simulation.gateways
    if not _comes_true(simulation, lambda: len({str(one.core.policy) for one in gateways.values()}) <= 1, AGREE_S):
        chosen = {name: gateway.core.policy for name, gateway in gateways.items()}
        raise InvariantError(f"gateways run different policies for {AGREE_S:g} s: {chosen}")


def _comes_true(simulation: Simulation, condition: Callable[[], bool], within_s: float) -> bool:
    now, until_s = simulation.kernel.now, simulation.kernel.now + within_s
    while not condition():
        now += LOOK_S
        if now > until_s:
            return False
        simulation.kernel.run(now)
    return True


def _tally(simulation: Simulation, invariants: Invariants, records: Sequence[Record]) -> Tally:
    assert simulation.processes is not None, "there are invariants to be watched"
    tokens = sum(record.partial_tokens or record.output_tokens for record in records)
    counts = {"runs": 1, "requests": len(records), "tokens": tokens, "events checked": invariants.num_events}
    tally = Tally({(RUNS, what): count for what, count in counts.items()})
    tally.update({(FAULTS, what): count for what, count in simulation.processes.hits.items()})
    tally.update((ENDINGS, _ending(record)) for record in records)
    for core in invariants.cores:
        moved = core._handovers.departures.tally
        tally[MIGRATIONS, "completed"] += moved.num_completed
        tally[MIGRATIONS, "broken off"] += moved.num_aborted
        tally[SERVICES, "loaded"] += core.num_loaded
        tally[SERVICES, "could not be read"] += core.residency.num_errors
        tally[SERVICES, "unloaded"] += core.num_dropped
        for tier in core.tiering.status():
            tally[TIERS, f"blocks from {tier.name}"] += tier.loaded_blocks
            tally[TIERS, f"faults of {tier.name}"] += tier.faults
    return tally


def _ending(record: Record) -> str:
    if record.reason is None:
        return str(record.outcome)
    return f"{record.outcome}: {_alike(record.reason.partition(';')[0])}"


def _alike(text: str) -> str:
    """The same for texts that look alike."""
    return re.sub(r"\d+(\.\d+)?", "N", text)
