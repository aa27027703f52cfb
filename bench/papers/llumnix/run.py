"""Runs cases of Llumnix's setting."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from bench.papers.llumnix.setting import PHYSICS, SERVICE, Case, make_profile, make_topology
from bench.papers.llumnix.watch import Seen, Watch
from bench.simulated import make_simulation, serve
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.reports.summary import Distribution

SAMPLE_S = 1.0  # between two looks at how memory is fragmented


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
    """What came of one case. ``preempted``, ``lost_s`` and ``moves`` are for each request, on average.

    ``moved``: how many requests moved so many times. ``fragmented``: share of all memory, on average.
    """

    num_requests: int
    num_failed: int
    latencies: Latencies
    preempted: float
    lost_s: float
    moves: float
    moved: dict[int, int]
    aborted: int  # migrations
    fragmented: float


def run_case(case: Case) -> Result:
    requests = case.requests()
    watch, topology = Watch(Simulation.origin_s), make_topology(case.contender, case.num_engines)
    simulation = make_simulation(
        topology, make_profile(), case.seed, physics=PHYSICS, coasts=case.coasts, timeline=watch
    )
    _sample(simulation, watch, requests[-1].at_s)
    records = serve(simulation, SERVICE, requests)
    now = simulation.kernel.now
    aborted = sum(engine.core.status(now).migrations_aborted_total for engine in simulation.engines.values())
    return _result(records, watch.seen, aborted)


def _sample(simulation: Simulation, watch: Watch, until_s: float) -> None:
    """Look at the memory now, and again as long as requests arrive."""
    if simulation.kernel.now < until_s:
        watch.sample()
        simulation.kernel.after(SAMPLE_S, _sample, simulation, watch, until_s)


def _result(records: Sequence[Record], seen: Seen, aborted: int) -> Result:
    count = len(records)
    moved = Counter(seen.moves.values())
    moved[0] = count - sum(moved.values())
    return Result(
        num_requests=count,
        num_failed=sum(record.outcome is not Outcome.FINISHED for record in records),
        latencies=Latencies.of(records),
        preempted=seen.num_preempted / count,
        lost_s=seen.lost_s / count,
        moves=seen.moves.total() / count,
        moved=dict(sorted(moved.items())),
        aborted=aborted,
        fragmented=sum(seen.fragmented) / len(seen.fragmented),
    )
