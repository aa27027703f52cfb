"""What slices add on top of continuous batching, in simulation: the same engines with and without them.

    python -m bench.papers.scls.continuous [--rates R ...] [--seconds 60] [--seeds 1] [--slices S ...] [--jobs N]
        [--memories "40 GB" "80 GB"]

Engines are Llama-2-13B on A100s of 40 GB (memory is scarce: 12,500 tokens) and of 80 GB (62,600), and get CodeFuse-like
requests (`bench.papers.scls.setting`), dispatched to the least loaded. ``optimistic`` is the engine as it is without
slices: it admits what fits now, and preempts when memory runs out. ``cautious`` admits what fits even if each answer
becomes as long as it may: a slice of 1024 tokens. ``drop`` has slices and no host memory to offload anything in. All
are given the same requests and promise the same. A run lasts until the last request has ended.
"""

import argparse
import logging
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import msgspec
import structlog
from rich.table import Table

from bench.harness.arguments import add_jobs, add_seeds, script_parser
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console
from bench.papers.scls.setting import CALM, LONGEST, PROFILE, SERVICE, UNBOUNDED, codefuse_like
from engines.core import EngineCore
from engines.costs.presets import MEMORY_FRACTION
from engines.costs.profiles import EngineProfile, load_profile
from engines.effects import Effect
from engines.scheduling.step import Step
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.garbage import rare_collections
from simulation.loads.arrival_processes import Arrivals, Process, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.observer import CoreParts, ObservedCore
from simulation.reports.timeline import Timeline

NUM_WORKERS = 2
RATES = (5.0, 7.0, 9.0)  # requests a second, of all workers
SLICES = (16, 32, 64, 128)
PROMISE = Slo(ttft_s=2.0, tpot_s=0.06)
MEMORIES = {"40 GB": 40e9, "80 GB": 80e9}  # of an A100
PARKING_BYTES = 64 * 2**30


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    slice_tokens: int | None = None
    offload_bytes: int = PARKING_BYTES


@dataclass(frozen=True, slots=True)
class Case:
    memory: str
    contender: Contender
    rate: float
    seconds: float
    seed: int

    def requests(self) -> list[TraceRequest]:
        """The same for every contender."""
        random = Random(f"{self.seed}/trace")
        return list(synthesize(codefuse_like(), Arrivals(self.rate, Process.POISSON), self.seconds, random))

    def profile(self) -> EngineProfile:
        known = load_profile(PROFILE)
        return replace(known, kv_memory_bytes=int(MEMORY_FRACTION * MEMORIES[self.memory]) - known.weight_bytes)

    def topology(self) -> Topology:
        worker = EngineSpec(
            "worker",
            Role.MULTIPLEX,
            (SERVICE,),
            backend="simulated",
            profile=PROFILE,
            max_running=256,
            max_waiting=UNBOUNDED,
            chunk_tokens=512,
            slice_tokens=self.contender.slice_tokens,
            offload_memory_bytes=self.contender.offload_bytes,
        )
        return Topology(
            "slices",
            Path(),
            (ServiceSpec(SERVICE, PROFILE, PROMISE),),
            tuple(replace(worker, id=f"worker-{index}") for index in range(NUM_WORKERS)),
            (GatewaySpec("gateway", max_requests=UNBOUNDED, max_waiting=UNBOUNDED),),
            policy=PolicySpec("least_loaded"),
            timing=replace(CALM, heartbeat_s=0.5, lease_s=5.0),
        )


class Result(msgspec.Struct, frozen=True):
    """``throughput``: requests over the time until the last has ended. ``running``: at a time on an engine, on average
    while it computes. ``attained``: of both promises. The last four are of a request.
    """

    throughput: float
    running: float
    mean_s: float
    p95_s: float
    p99_s: float
    ttft_p99_s: float
    tpot_p99_s: float
    attained: float
    preempted: float
    kept: float
    moved: float
    offloaded: float


class _Watch(Timeline):
    """A timeline whose engine cores say how many requests they run, and for how long."""

    def __init__(self, origin_s: float) -> None:
        super().__init__(origin_s)
        self.running_s = self.computing_s = 0.0

    def core(self, parts: CoreParts) -> EngineCore:
        return _WatchedCore(self, parts)


class _WatchedCore(ObservedCore):
    def __init__(self, watch: _Watch, parts: CoreParts) -> None:
        super().__init__(parts)
        self._watch = watch
        self._since, self._num_running = 0.0, 0

    def next_step(self, now: float) -> tuple[Step | None, list[Effect]]:
        if self._num_running:
            self._watch.computing_s += now - self._since
            self._watch.running_s += self._num_running * (now - self._since)
        step, effects = super().next_step(now)
        running = sum(len(service.queue.running) for service in self._services.values())
        self._since, self._num_running = now, 0 if step is None else running
        return step, effects


def main() -> int:
    options = _parse()
    cases = [
        Case(memory, contender, rate, options.seconds, seed)
        for memory in options.memories
        for rate in options.rates
        for contender in _contenders(options.slices)
        for seed in range(options.seeds)
    ]
    results = dict(zip(cases, run_jobs(run_case, cases, options.jobs), strict=True))
    console = make_console(160)
    for memory in options.memories:
        console.print(_table(memory, {case: result for case, result in results.items() if case.memory == memory}))
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.scls.continuous", __doc__)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, metavar="R", help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of arrivals (default: 60)")
    add_seeds(parser, 1)
    parser.add_argument("--slices", nargs="+", type=int, default=SLICES, metavar="S", help="tokens of a slice")
    parser.add_argument(
        "--memories", nargs="+", choices=MEMORIES, default=tuple(MEMORIES), metavar="M", help="of an A100"
    )
    add_jobs(parser)
    return parser.parse_args()


def _contenders(slices: Sequence[int]) -> list[Contender]:
    return [
        Contender("optimistic"),
        Contender("cautious", LONGEST),
        *(Contender(f"slices of {tokens}", tokens) for tokens in slices),
        Contender(f"slices of {slices[0]}, drop", slices[0], 0),
    ]


def run_case(case: Case) -> Result:
    """For a pool of processes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    topology, records, watch = case.topology(), list[Record](), _Watch(Simulation.origin_s)
    simulation = Simulation(
        topology,
        dict.fromkeys([engine.id for engine in topology.engines], case.profile()),
        seed=case.seed,
        physics=Physics(),
        slo=SloRule(),
        coasts=True,
        timeline=watch,
    )
    with rare_collections():
        simulation.run(SERVICE, case.requests(), records.append)
    statuses = [engine.core.status(simulation.kernel.now) for engine in simulation.engines.values()]
    failed = [record for record in records if record.outcome is not Outcome.FINISHED]
    if failed:
        raise RuntimeError(f"{len(failed)} requests did not finish; the first: {failed[0].reason}")
    count = len(records)
    times = sorted(record.e2e_s or 0.0 for record in records)
    return Result(
        throughput=count / max(record.arrived_s + (record.e2e_s or 0.0) for record in records),
        running=watch.running_s / watch.computing_s,
        mean_s=statistics.fmean(times),
        p95_s=_quantile(times, 0.95),
        p99_s=_quantile(times, 0.99),
        ttft_p99_s=_quantile([record.ttft_s or 0.0 for record in records], 0.99),
        tpot_p99_s=_quantile([record.tpot_s or 0.0 for record in records], 0.99),
        attained=sum(record.meets_slo for record in records) / count,
        preempted=sum(status.preemptions_total for status in statuses) / count,
        kept=sum(status.slices_kept_total for status in statuses) / count,
        moved=sum(status.slices_moved_total for status in statuses) / count,
        offloaded=sum(status.slices_offloaded_total for status in statuses) / count,
    )


def _quantile(values: Sequence[float], quantile: float) -> float:
    return sorted(values)[min(len(values) - 1, int(quantile * len(values)))]


def _table(memory: str, results: Mapping[Case, Result]) -> Table:
    table = Table(
        title=f"A100s of {memory}; what was preempted, kept, moved and offloaded: times a request", title_justify="left"
    )
    table.add_column("req/s", justify="right")
    table.add_column("engine", no_wrap=True)
    for heading in (
        "throughput",
        "running",
        "mean, s",
        "P95, s",
        "P99, s",
        "TTFT P99, s",
        "TPOT P99, ms",
        "attained",
    ):
        table.add_column(heading, justify="right")
    for heading in ("preempted", "kept", "moved", "offloaded"):
        table.add_column(heading, justify="right")
    seeds: dict[tuple[float, str], list[Result]] = defaultdict(list)
    for case, result in results.items():
        seeds[case.rate, case.contender.name].append(result)
    for (rate, name), of_seeds in seeds.items():
        columns = zip(*(msgspec.structs.astuple(result) for result in of_seeds), strict=True)
        one = Result(*(statistics.fmean(column) for column in columns))
        times = one.throughput, one.running, one.mean_s, one.p95_s, one.p99_s, one.ttft_p99_s
        table.add_row(
            f"{rate:g}",
            name,
            *(f"{value:.2f}" for value in times),
            f"{1e3 * one.tpot_p99_s:.0f}",
            f"{100 * one.attained:.1f} %",
            *(f"{value:.2f}" for value in (one.preempted, one.kept, one.moved, one.offloaded)),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
