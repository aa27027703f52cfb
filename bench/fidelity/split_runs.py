"""What it gains and what it changes to cut one simulated run into stretches of its time (`mesh simulate --split`).

    python -m bench.fidelity.split_runs [--split 2] [--lead 60[,S..]] [--duration S] [--policy P] [--jobs N]
    python -m bench.fidelity.split_runs --trace mooncake.jsonl.gz --engines 32

The load and the mesh are those of `bench.fidelity.simulation_speed`, or a trace's own arrivals. The run is simulated
whole, then once for each lead in stretches side by side. Each latency's percentiles (every fifth, the first and the
99th) are held against those of the whole run. With ``--again`` it is simulated whole once more with one request more at
its beginning, which is not counted: what that changes is chance, so stretches cannot be held to less.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.fidelity.simulation_speed import PROFILE, SERVICE, load, topology
from bench.harness.arguments import script_parser
from bench.harness.jobs import run_jobs
from engines.costs.named_profiles import load_profile
from mesh.cli.numbers import count, positive, seconds_up_to
from mesh.jobs.runner import JobPlace
from router.history.records import Outcome, Record
from router.policies.registry import policies
from simulation.experiment import Experiment
from simulation.loads.sources import TraceLoad
from simulation.loads.trace_request import LONGEST_S
from simulation.loads.traces import load_trace
from simulation.reports.packed import PackedRecords
from simulation.reports.split import Split
from simulation.reports.summary import Distribution
from simulation.split.split_run import SplitRun, StretchJob, StretchRecords
from simulation.split.stretches import Stretch

AFTER_S = 1e-3  # a trace begins, so that a request can come before it
PERCENTS = 1, *range(5, 100, 5), 99
LATENCIES: dict[str, Callable[[Record], float | None]] = {
    "TTFT": lambda record: record.ttft_s,
    "TPOT": lambda record: record.tpot_s,
    "end to end": lambda record: record.e2e_s if record.outcome is Outcome.FINISHED else None,
}


class Done(NamedTuple):
    """A stretch that was simulated, and the seconds of CPU that it took."""

    found: StretchRecords
    cpu_s: float


class Played(NamedTuple):
    """A run in one piece or several. ``longest_s``: the CPU time of the piece that took the most."""

    records: PackedRecords
    parts: Sequence[StretchRecords]
    wall_s: float
    cpu_s: float
    longest_s: float


def simulate(job: StretchJob) -> Done:
    start = time.process_time()
    [found] = job.runs()
    return Done(found, time.process_time() - start)


def whole(run: Experiment) -> StretchJob:
    """All of it as one stretch."""
    return StretchJob(run, Stretch(0, 0.0, 0.0, inf, 0, len(run.load.pool)))


def again(run: Experiment) -> StretchJob:
    """The same after one request that does not count."""
    first = run.load.pool[0]
    later = replace(run, load=TraceLoad([replace(first, at_s=0.0), *run.load.pool]))
    return StretchJob(later, Stretch(0, 0.0, first.at_s, inf, 0, len(run.load.pool)))


def play(jobs: Sequence[StretchJob], place: JobPlace, what: str) -> Played:
    start = time.perf_counter()
    done = run_jobs(simulate, jobs, place, what)
    wall_s = time.perf_counter() - start
    records = PackedRecords()
    for one in done:
        records.extend(one.found.records)
    cpu_s = [one.cpu_s for one in done]
    return Played(records, [one.found for one in done], wall_s, sum(cpu_s), max(cpu_s))


def differences(records: PackedRecords, others: PackedRecords) -> Iterator[tuple[str, int, float]]:
    """Yield each latency with the percentile of the ``others`` that is furthest from that of the records, and how far,
    relatively.
    """
    for name, latency in LATENCIES.items():
        mine, theirs = (Distribution.of(map(latency, one)) for one in (records, others))
        if mine is None or theirs is None:
            continue
        apart = {percent: theirs.percentile(percent) / mine.percentile(percent) - 1 for percent in PERCENTS}
        worst = max(apart, key=lambda percent: abs(apart[percent]))
        yield name, worst, apart[worst]


def experiment(options: argparse.Namespace) -> Experiment:
    what, random = topology(options.engines, options.policy), Random(f"{options.seed}/load")
    if options.trace is not None:
        requests = [replace(one, at_s=one.at_s + AFTER_S) for one in load_trace(options.trace, random)]
    else:
        requests = list(load(options.rate, options.duration, random))
    profile = load_profile(PROFILE)
    profiles = {engine.id: profile for engine in what.engines}
    return Experiment(what, profiles, SERVICE, TraceLoad(requests), what.policy, seed=options.seed)


def report(options: argparse.Namespace) -> None:
    run, place = experiment(options), JobPlace(options.processes)
    once = play([whole(run)], JobPlace(1), "whole")
    tokens = sum(record.output_tokens for record in once.records)
    print(f"{len(once.records)} requests, {tokens} tokens; load averages {_load()}")
    print(f"whole: {once.wall_s:.1f} s, {once.cpu_s:.1f} s of CPU")
    if options.again:
        print(f"whole again, after one request: {_apart(once, play([again(run)], JobPlace(1), 'again'))}")
    for lead_s in options.lead:
        split = SplitRun.of(run, options.split, lead_s)
        with split.jobs() as jobs:
            cut = play(jobs, place, f"{options.split} stretches")
        counted = len(cut.records), sum(record.output_tokens for record in cut.records)
        assert counted == (len(once.records), tokens), "each request counts once"
        said = Split(options.split, lead_s, split.edges(cut.parts))
        print(
            f"{options.split} stretches, lead {lead_s:g} s: {cut.wall_s:.1f} s ({once.wall_s / cut.wall_s:.2f}x), "
            f"{cut.cpu_s:.1f} s of CPU ({cut.cpu_s / once.cpu_s:.2f}x), of which one stretch {cut.longest_s:.1f} s "
            f"({once.cpu_s / cut.longest_s:.2f}x); load averages {_load()}; {_apart(once, cut)}; "
            f"in flight where they meet: {', '.join(f'{edge.num_before} and {edge.num_after}' for edge in said.edges)}"
        )
        if said.warning is not None:
            print(f"  {said.warning}")


def _apart(mine: Played, theirs: Played) -> str:
    found = differences(mine.records, theirs.records)
    return ", ".join(f"{name} P{percent} {100 * apart:+.2f} %" for name, percent, apart in found)


def _load() -> str:
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def _leads(text: str) -> list[float]:
    read = seconds_up_to(LONGEST_S, "a year")
    return [read(part) for part in text.split(",")]


def main() -> None:
    parser = script_parser("bench.fidelity.split_runs", __doc__)
    parser.add_argument("--engines", type=count, default=64, metavar="N")
    parser.add_argument("--rate", type=positive, default=100.0, metavar="R", help="requests a second (default: 100)")
    parser.add_argument("--duration", type=positive, default=600.0, metavar="S", help="of arrivals (default: 600)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="these requests instead, at their own times")
    parser.add_argument("--policy", choices=sorted(policies()), default="tropical")
    parser.add_argument("--split", type=count, default=2, metavar="N", help="stretches (default: 2)")
    parser.add_argument("--lead", type=_leads, default=[60.0], metavar="S[,S..]", help="of each (default: 60)")
    parser.add_argument(
        "--processes", type=count, default=os.cpu_count() or 1, metavar="N", help="(default: one a core)"
    )
    parser.add_argument("--again", action="store_true", help="simulate it whole again, after one request more")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    report(parser.parse_args())


if __name__ == "__main__":
    main()
