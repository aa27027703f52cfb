"""Tropical's figure: how many requests a pair of engines serves with 90 % of them inside their SLOs, by policy.

    python -m bench.papers.tropical --mooncake FILE --arxiv FILE [--requests 600] [--seeds 3] [--only WORDS] [--out DIR]

In simulation: Llama-2-70B on A100s with tensor parallelism 4 and InternLM2.5-20B with 2, two engines each, TTFT SLO 5
times the unloaded prefill, TPOT SLO 100 ms; Mooncake's conversation with its own arrivals (at another rate), and
arXiv summaries (long input, short output) with Poisson arrivals. Each policy is searched for the highest rate at which
the promise holds; colocated engines with chunked prefill are tried with several chunk sizes, and the best one counts.
Baselines run as their papers have them, and with early rejection besides.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from random import Random

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.harness.arguments import script_parser
from engines.costs.profiles import load_profile
from mesh.errors import EXIT_CONFIGURATION
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from simulation.capacity import Found, find_capacity
from simulation.experiment import Experiment, SyntheticLoad, TraceLoad
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths, load_trace
from simulation.loads.workload import SloRule

PROMISE = 0.9
TPOT_SLO_S = 0.1
TTFT_FACTOR = 5.0
PRECISION = 0.04
OURS = ("tropical", "elastic")
UNSPLIT = ("colocated", "chunked")  # engines are all alike for them
PAPERS = ("colocated", "disaggregated")  # what the paper compares with: vLLM and DistServe as they were
MODELS = {"Llama-2-70B TP4": "a100-llama2-70b-tp4", "InternLM2.5-20B TP2": "a100-internlm2.5-20b-tp2"}


@dataclass(frozen=True, slots=True)
class Contender:
    """``chunk_tokens`` is the engines' largest step of prompt tokens; without ``splits``, all engines multiplex."""

    policy: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    chunk_tokens: int = 2048
    splits: bool = True

    @property
    def name(self) -> str:
        words = [self.policy, *(f"{key}={value}" for key, value in self.parameters.items())]
        return " ".join(words) + ("" if self.splits or self.policy in UNSPLIT else ", 2 multiplexing")


REJECTING = {"reject_late": True}
CONTENDERS = (
    *(Contender("colocated", parameters, splits=False) for parameters in ({}, REJECTING)),
    *(
        Contender("chunked", parameters, tokens, splits=False)
        for parameters in ({}, REJECTING)
        for tokens in (256, 512, 1024)
    ),
    *(Contender("disaggregated", parameters) for parameters in ({}, REJECTING)),
    Contender("disaggregated_sjf"),
    Contender("tropical"),
    Contender("elastic"),
    Contender("elastic", splits=False),
)


@dataclass(frozen=True, slots=True)
class Search:
    """One contender on one model and workload: what a worker process does."""

    model: str
    workload: str
    contender: Contender
    requests: tuple[TraceRequest, ...]
    has_arrivals: bool
    num_requests: int
    seeds: int

    @property
    def name(self) -> str:
        return f"{self.model}, {self.workload}, {self.contender.name}"

    def run(self) -> Found:
        return find_capacity(self._attainment, PROMISE, 0.5 if "70B" in self.model else 0.7, PRECISION)

    def _attainment(self, rate: float) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self._experiment(rate, seed).run().attainment for seed in range(self.seeds))

    def _experiment(self, rate: float, seed: int) -> Experiment:
        topology = make_topology(MODELS[self.model], self.contender)
        profile = load_profile(MODELS[self.model])
        profiles = {engine.id: profile for engine in topology.engines}
        slo = SloRule(TTFT_FACTOR)
        return Experiment(topology, profiles, "model", self._load(rate, seed), topology.policy, rate, seed, slo=slo)

    def _load(self, rate: float, seed: int) -> TraceLoad | SyntheticLoad:
        if not self.has_arrivals:
            return SyntheticLoad(self.requests, Arrivals(rate), 1e9, self.num_requests)
        start = Random(seed).randrange(len(self.requests) - self.num_requests)
        part = self.requests[start : start + self.num_requests]
        return TraceLoad([replace(request, at_s=request.at_s - part[0].at_s) for request in part])


def make_topology(profile: str, contender: Contender) -> Topology:
    """Two engines."""
    roles = {"prefill": Role.PREFILL if contender.splits else Role.MULTIPLEX, "decode": Role.MULTIPLEX}
    engines = [
        EngineSpec(
            name,
            role,
            ("model",),
            backend="simulated",
            profile=profile,
            max_running=256,
            max_waiting=100_000,
            chunk_tokens=contender.chunk_tokens,
        )
        for name, role in roles.items()
    ]
    service = ServiceSpec("model", profile, Slo(1.0, TPOT_SLO_S, PROMISE))
    gateway = GatewaySpec("gateway", max_requests=1_000_000, max_waiting=1_000_000)
    policy = PolicySpec(contender.policy, contender.parameters)
    return Topology("figure", Path(), (service,), tuple(engines), (gateway,), policy=policy)


def run_search(search: Search) -> Found:
    """For a pool of processes."""
    return search.run()


@dataclass(frozen=True, slots=True)
class Line:
    """What a search found."""

    model: str
    workload: str
    policy: str
    contender: str
    chunk_tokens: int
    found: Found


def main() -> int:
    options = _parse()
    words, every = options.only.lower().split(), list(_searches(options))
    searches = [search for search in every if all(word in search.name.lower() for word in words)]
    if not searches:
        sys.stderr.write(f"--only: no search has all of {options.only!r}; one is called {every[0].name!r}\n")
        return EXIT_CONFIGURATION
    lines = _run(searches, options.jobs)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(_table(lines))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "capacities.json").write_bytes(msgspec.json.format(msgspec.json.encode(lines)))
    from bench.papers.tropical.plot import plot_attainment

    for path in plot_attainment(options.out, _best_chunks(lines), PROMISE):
        console.print(f"drew {path}")
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.tropical", __doc__)
    parser.add_argument("--mooncake", type=Path, required=True, metavar="FILE", help="conversation_trace.jsonl(.gz)")
    parser.add_argument(
        "--arxiv", type=Path, required=True, metavar="FILE", help="CSV with input_tokens, output_tokens"
    )
    parser.add_argument("--requests", type=int, default=600, metavar="N", help="of each run (default: 600)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs at each rate (default: 3)")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="searches whose model, workload and policy have all of these words"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="searches at a time")
    parser.add_argument("--out", type=Path, default=Path("tropical_figure"), metavar="DIR")
    return parser.parse_args()


def _searches(options: argparse.Namespace) -> Iterable[Search]:
    workloads = {
        "Mooncake": (tuple(load_trace(options.mooncake, Random("spread"))), True),
        "arXiv": (tuple(load_lengths(options.arxiv)), False),
    }
    for model in MODELS:
        for workload, (requests, has_arrivals) in workloads.items():
            for contender in CONTENDERS:
                yield Search(model, workload, contender, requests, has_arrivals, options.requests, options.seeds)


def _run(searches: Sequence[Search], jobs: int) -> list[Line]:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{len(searches)} searches", total=len(searches))
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            futures = [pool.submit(run_search, search) for search in searches]
            for _ in as_completed(futures):
                progress.advance(task)
            founds = [future.result() for future in futures]
    return [
        Line(
            search.model,
            search.workload,
            search.contender.policy,
            search.contender.name,
            search.contender.chunk_tokens,
            found,
        )
        for search, found in zip(searches, founds, strict=True)
    ]


def _best_chunks(lines: Iterable[Line]) -> list[Line]:
    """Of one policy with several chunk sizes, the best."""
    best: dict[tuple[str, str, str], Line] = {}
    for line in lines:
        key = (line.model, line.workload, line.contender)
        if key not in best or line.found.rate > best[key].found.rate:
            best[key] = line
    return list(best.values())


def _table(lines: Sequence[Line]) -> Table:
    """Rates, and what they are to the best of the policies that are not ours, and to the better of the paper's."""
    table = Table(title=f"requests a second at {PROMISE:.0%} attainment", title_justify="left")
    for heading in ("model", "workload", "policy", "chunk"):
        table.add_column(heading)
    for heading in ("req/s", "x best baseline", "x the paper's", "runs"):
        table.add_column(heading, justify="right")
    for line in lines:
        rivals = [other for other in lines if (other.model, other.workload) == (line.model, line.workload)]
        baselines = [other for other in rivals if other.policy not in OURS]
        papers = [other for other in baselines if other.contender in PAPERS]
        ratios = (_ratio(line, baselines), _ratio(line, papers))
        numbers = (f"{line.found.rate:.3f}", *ratios, str(len(line.found.trials)))
        table.add_row(line.model, line.workload, line.contender, str(line.chunk_tokens), *numbers)
    return table


def _ratio(line: Line, rivals: Iterable[Line]) -> str:
    best = max((rival.found.rate for rival in rivals), default=0.0)
    return f"{line.found.rate / best:.2f}" if best else "-"
