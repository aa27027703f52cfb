"""Tropical's figure: how many requests a pair of engines serves with 90 % of them inside their SLOs, by policy.

    python -m bench.papers.tropical --mooncake FILE --arxiv FILE [--requests 600] [--seeds 3] [--only WORDS] [--out DIR]

In simulation: Llama-2-70B on A100s with tensor parallelism 4 and InternLM2.5-20B with 2, two engines each, TTFT SLO 5
times the unloaded prefill, TPOT SLO 100 ms; Mooncake's conversation with its own arrivals (at another rate), and
arXiv summaries (long input, short output) with Poisson arrivals. Each policy is searched for the highest rate at which
the promise holds; colocated engines with chunked prefill are tried with several chunk sizes, and the best one counts.
Baselines run as their papers have them, and with early rejection besides.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean

from rich.table import Table

from bench.harness.arguments import add_jobs, add_out, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console, make_table
from bench.simulated import make_fleet, modelled_engine
from engines.costs.profiles import load_profile
from mesh.errors import EXIT_CONFIGURATION
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from simulation.capacity import FoundCapacity, find_capacity
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
class Workload:
    """``has_arrivals``: requests come when they did, at another rate; else as a Poisson process."""

    name: str
    requests: Sequence[TraceRequest]
    has_arrivals: bool

    def load(self, rate: float, num_requests: int, seed: int) -> TraceLoad | SyntheticLoad:
        if not self.has_arrivals:
            return SyntheticLoad(self.requests, Arrivals(rate), 1e9, num_requests)
        start = Random(seed).randrange(len(self.requests) - num_requests)
        part = self.requests[start : start + num_requests]
        return TraceLoad([replace(request, at_s=request.at_s - part[0].at_s) for request in part])


@dataclass(frozen=True, slots=True)
class Search:
    """One contender on one model and workload: what a worker process does."""

    model: str
    workload: Workload
    contender: Contender
    num_requests: int
    seeds: int

    @property
    def name(self) -> str:
        return f"{self.model}, {self.workload.name}, {self.contender.name}"

    def attainment(self, rate: float) -> float:
        """Return the mean over the seeds."""
        return fmean(self._experiment(rate, seed).run().attainment for seed in range(self.seeds))

    def _experiment(self, rate: float, seed: int) -> Experiment:
        preset = MODELS[self.model]
        topology = make_topology(preset, self.contender)
        profiles = dict.fromkeys([engine.id for engine in topology.engines], load_profile(preset))
        load, slo = self.workload.load(rate, self.num_requests, seed), SloRule(TTFT_FACTOR)
        return Experiment(topology, profiles, "model", load, topology.policy, rate, seed, slo=slo)


def make_topology(profile: str, contender: Contender) -> Topology:
    """Two engines."""
    roles = {"prefill": Role.PREFILL if contender.splits else Role.MULTIPLEX, "decode": Role.MULTIPLEX}
    settings = {"max_running": 256, "chunk_tokens": contender.chunk_tokens}
    engines = [modelled_engine(name, "model", profile, role=role, **settings) for name, role in roles.items()]
    service = ServiceSpec("model", profile, Slo(1.0, TPOT_SLO_S, PROMISE))
    return make_fleet("figure", service, engines, PolicySpec(contender.policy, contender.parameters))


def run_search(search: Search) -> FoundCapacity:
    return find_capacity(search.attainment, PROMISE, 0.5 if "70B" in search.model else 0.7, PRECISION)


@dataclass(frozen=True, slots=True)
class Line:
    """What a search found."""

    model: str
    workload: str
    contender: Contender
    found: FoundCapacity


def main() -> int:
    options = _parse()
    words, every = options.only.lower().split(), list(_searches(options))
    searches = [search for search in every if all(word in search.name.lower() for word in words)]
    if not searches:
        sys.stderr.write(f"--only: no search has all of {options.only!r}; one is called {every[0].name!r}\n")
        return EXIT_CONFIGURATION
    found = run_jobs(run_search, searches, options.jobs, "searches")
    lines = [Line(one.model, one.workload.name, one.contender, rate) for one, rate in zip(searches, found, strict=True)]
    make_console().print(_table(lines))
    write_json(options.out / "capacities.json", lines)
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.tropical", __doc__)
    parser.add_argument("--mooncake", type=Path, required=True, metavar="FILE", help="conversation_trace.jsonl(.gz)")
    parser.add_argument("--arxiv", type=Path, required=True, metavar="FILE", help="input_tokens, output_tokens")
    parser.add_argument("--requests", type=int, default=600, metavar="N", help="of each run (default: 600)")
    add_seeds(parser, 3)
    parser.add_argument("--only", default="", metavar="WORDS", help="searches whose names have all of these words")
    add_jobs(parser)
    add_out(parser, "tropical_figure")
    return parser.parse_args()


def _searches(options: argparse.Namespace) -> Iterable[Search]:
    mooncake = Workload("Mooncake", load_trace(options.mooncake, Random("spread")), has_arrivals=True)
    arxiv = Workload("arXiv", load_lengths(options.arxiv), has_arrivals=False)
    for model in MODELS:
        for workload in (mooncake, arxiv):
            for contender in CONTENDERS:
                yield Search(model, workload, contender, options.requests, options.seeds)


def _table(lines: Sequence[Line]) -> Table:
    """Show rates, beside the best of the policies that are not ours, and beside the better of the paper's."""
    table = make_table(
        f"requests a second at {PROMISE:.0%} attainment",
        ("model", "workload", "policy", "chunk"),
        ("req/s", "x best baseline", "x the paper's", "runs"),
    )
    for line in lines:
        rivals = [other for other in lines if (other.model, other.workload) == (line.model, line.workload)]
        baselines = [other for other in rivals if other.contender.policy not in OURS]
        papers = [other for other in baselines if other.contender.name in PAPERS]
        numbers = (f"{line.found.rate:.3f}", _ratio(line, baselines), _ratio(line, papers), str(len(line.found.trials)))
        contender = line.contender
        table.add_row(line.model, line.workload, contender.name, str(contender.chunk_tokens), *numbers)
    return table


def _ratio(line: Line, rivals: Iterable[Line]) -> str:
    best = max((rival.found.rate for rival in rivals), default=0.0)
    return f"{line.found.rate / best:.2f}" if best else "-"
