"""Runs cases of Llumnix's setting, and finds how many engines a promise takes."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import structlog

from bench.papers.llumnix.setting import (
    HIGH,
    KV_BYTES_PER_S,
    NUM_ENGINES,
    SERVICE,
    Case,
    Contender,
    Load,
    make_profile,
    make_topology,
)
from bench.papers.llumnix.watch import Seen, Watch
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.garbage import rare_collections
from simulation.loads.workload import SloRule
from simulation.reports.summary import Distribution

SAMPLE_S = 1.0
KEPT_SAMPLES = 400


class Latencies(msgspec.Struct, frozen=True):
    """Seconds, over requests: until the first token (the paper's prefill), a decoded token, and the whole request."""

    ttft_mean: float
    ttft_p50: float
    ttft_p99: float
    tpot_mean: float
    tpot_p99: float
    e2e_mean: float
    e2e_p99: float


class Result(msgspec.Struct, frozen=True):
    """What came of one case. ``preempted``, ``lost_s`` and ``moves`` are for each request, on average.

    ``moved``: how many requests moved so many times. ``fragmented``: share of all memory, on average.
    """

    num_requests: int
    num_failed: int
    span_s: float
    latencies: dict[str, Latencies]  # of all requests, of high ones, of normal ones
    preempted: float
    lost_s: float
    moves: float
    moved: dict[int, int]
    aborted: int  # migrations
    fragmented: float
    samples: list[tuple[float, float]]  # (when, fragmented)


def run_case(case: Case) -> Result:
    requests = case.load.requests(case.num_requests, case.seed)
    is_high = [request.priority == HIGH for request in requests]
    if not case.heeds_priorities:
        requests = [replace(request, priority=0) for request in requests]
    topology = make_topology(case.contender, case.num_engines)
    watch, records = Watch(Simulation.origin_s), list[Record]()
    simulation = Simulation(
        topology,
        dict.fromkeys([engine.id for engine in topology.engines], make_profile()),
        seed=case.seed,
        physics=Physics(kv_bytes_per_s=KV_BYTES_PER_S),
        slo=SloRule(),
        coasts=case.coasts,
        timeline=watch,
    )
    _sample(simulation, watch, requests[-1].at_s)
    with rare_collections():
        simulation.run(SERVICE, requests, records.append)
    aborted = sum(
        engine.core.status(simulation.kernel.now).migrations_aborted_total for engine in simulation.engines.values()
    )
    return _result(records, is_high, watch.seen, aborted)


def _sample(simulation: Simulation, watch: Watch, until_s: float) -> None:
    """As long as requests arrive."""
    if simulation.kernel.now < until_s:
        watch.sample(simulation.kernel.now)
        simulation.kernel.after(SAMPLE_S, _sample, simulation, watch, until_s)


def _result(records: Sequence[Record], is_high: Sequence[bool], seen: Seen, aborted: int) -> Result:
    count = len(records)
    groups = {
        "all": records,
        "high": [record for record in records if is_high[int(record.id[1:])]],
        "normal": [record for record in records if not is_high[int(record.id[1:])]],
    }
    if not groups["high"]:
        groups = {"all": records}
    moved = Counter(seen.moves.values())
    moved[0] = count - sum(moved.values())
    return Result(
        num_requests=count,
        num_failed=sum(record.outcome is not Outcome.FINISHED for record in records),
        span_s=max(record.arrived_s + (record.e2e_s or 0.0) for record in records),
        latencies={name: _latencies(group) for name, group in groups.items()},
        preempted=seen.num_preempted / count,
        lost_s=seen.lost_s / count,
        moves=seen.moves.total() / count,
        moved=dict(sorted(moved.items())),
        aborted=aborted,
        fragmented=sum(share for _, share in seen.fragmented) / len(seen.fragmented),
        samples=seen.fragmented[:: max(1, len(seen.fragmented) // KEPT_SAMPLES)],
    )


def _latencies(records: Sequence[Record]) -> Latencies:
    ttft = _spread([record.ttft_s for record in records])
    tpot = _spread([record.tpot_s for record in records])
    e2e = _spread([record.e2e_s for record in records])
    return Latencies(
        ttft_mean=ttft.mean,
        ttft_p50=ttft.percentile(50),
        ttft_p99=ttft.percentile(99),
        tpot_mean=tpot.mean,
        tpot_p99=tpot.percentile(99),
        e2e_mean=e2e.mean,
        e2e_p99=e2e.percentile(99),
    )


def _spread(values: Iterable[float | None]) -> Distribution:
    spread = Distribution.of(values)
    if spread is None:
        raise ValueError("no request was answered")
    return spread


def mean_latencies(results: Iterable[Result], group: str = "all") -> Latencies:
    """Of runs that differ by their seed."""
    columns = zip(*(msgspec.structs.astuple(result.latencies[group]) for result in results), strict=True)
    return Latencies(*(sum(column) / len(column) for column in columns))


# --- how many engines -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sizing:
    """The fewest engines with which the P99 of TTFT, averaged over the seeds, is at most ``target_s``."""

    load: Load
    contender: Contender
    seeds: int
    num_requests: int
    target_s: float
    coasts: bool = False


class Sized(msgspec.Struct, frozen=True):
    num_engines: int
    p99_s: dict[int, float]  # by number of engines tried


def run_sizing(sizing: Sizing) -> Sized:
    def p99_s(num_engines: int) -> float:
        cases = [
            Case(sizing.load, sizing.contender, seed, sizing.num_requests, num_engines, coasts=sizing.coasts)
            for seed in range(sizing.seeds)
        ]
        return mean_latencies(map(run_case, cases)).ttft_p99

    return fewest(p99_s, sizing.target_s)


def fewest(p99_s: Callable[[int], float], target_s: float) -> Sized:
    """Bracket the number of engines, then halve the bracket."""
    tried: dict[int, float] = {}

    def suffices(num_engines: int) -> bool:
        tried[num_engines] = p99_s(num_engines)
        return tried[num_engines] <= target_s

    enough, step = NUM_ENGINES, NUM_ENGINES // 4
    while not suffices(enough):
        enough += step
    short = enough - step
    while short > 0 and short not in tried and suffices(short):
        enough, short = short, short - step
    while enough - short > 1:
        middle = (enough + short) // 2
        enough, short = (middle, short) if suffices(middle) else (enough, middle)
    return Sized(enough, dict(sorted(tried.items())))


Job = Case | Sizing
Answers = Mapping[Job, Result | Sized]


def run_job(job: Job) -> Result | Sized:
    """For a pool of processes. Engines log every migration."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    return run_case(job) if isinstance(job, Case) else run_sizing(job)
