"""Runs cases of Llumnix's setting."""

from collections.abc import Iterable, Sequence

import msgspec

from bench.papers.llumnix.setting import PHYSICS, SERVICE, Case, make_profile, make_topology
from bench.simulated import make_simulation, serve
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.reports.summary import Distribution


class Latencies(msgspec.Struct, frozen=True):
    """Seconds, over requests: until the first token (the paper's prefill), a decoded token, and the whole request."""

    ttft_mean: float
    ttft_p99: float
    tpot_mean: float
    tpot_p99: float
    e2e_mean: float
    e2e_p99: float

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Latencies":
        """Summarize records, of which one at least was answered."""
        columns = zip(*((record.ttft_s, record.tpot_s, record.e2e_s) for record in records), strict=True)
        return cls(*(value for column in columns for value in mean_and_p99(column)))


def mean_and_p99(values: Iterable[float | None]) -> tuple[float, float]:
    spread = Distribution.of(values)
    assert spread is not None, "no request was answered"
    return spread.mean, spread.percentile(99)


class Result(msgspec.Struct, frozen=True):
    """What came of one case. ``preempted`` and ``moves`` are for each request, on average."""

    num_requests: int
    num_failed: int
    latencies: Latencies
    preempted: float
    moves: float


def run_case(case: Case) -> Result:
    topology, profile = make_topology(case.contender, case.num_engines), make_profile()
    simulation = make_simulation(topology, profile, case.seed, physics=PHYSICS, coasts=case.coasts)
    records = serve(simulation, SERVICE, case.requests())
    num_preempted, num_moved = preempted_and_moved(simulation)
    return Result(
        num_requests=len(records),
        num_failed=sum(record.outcome is not Outcome.FINISHED for record in records),
        latencies=Latencies.of(records),
        preempted=num_preempted / len(records),
        moves=num_moved / len(records),
    )


def preempted_and_moved(simulation: Simulation) -> tuple[int, int]:
    """Count preemptions and migrations over all engines."""
    statuses = [engine.core.status(simulation.kernel.now) for engine in simulation.engines.values()]
    return sum(status.preemptions_total for status in statuses), sum(status.migrations_total for status in statuses)
