"""Tropical's figure: how many requests a pair of engines serves with 90 % of them inside their SLOs, by policy.

    python -m bench.papers.tropical --mooncake FILE --arxiv FILE [--requests 600] [--seeds 3] [--only WORDS] [--out DIR]

In simulation: Llama-2-70B on A100s with tensor parallelism 4 and InternLM2.5-20B with 2, two engines each, TTFT SLO 5
times the unloaded prefill, TPOT SLO 100 ms; Mooncake's conversation with its own arrivals (at another rate), and
arXiv summaries (long input, short output) with Poisson arrivals. Each policy is searched for the highest rate at which
the promise holds; colocated engines with chunked prefill are tried with several chunk sizes, and the best one counts.
Baselines run as their papers have them, and with early rejection besides.
"""

import argparse
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Protocol

from rich.table import Table

from bench.harness.arguments import add_jobs, add_out, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console, make_table
from engines.costs.profiles import load_profile
from mesh.errors import EXIT_CONFIGURATION
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from simulation.capacity import FoundCapacity, find_capacity
from simulation.experiment import Experiment, SyntheticLoad, TraceLoad
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths, load_trace
from simulation.loads.workload import SloRule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

from bench.harness.plots import new_figure, save, tidy

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

    def run(self) -> FoundCapacity:
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


def run_search(search: Search) -> FoundCapacity:
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
    found: FoundCapacity


def main() -> int:
    options = _parse()
    words, every = options.only.lower().split(), list(_searches(options))
    searches = [search for search in every if all(word in search.name.lower() for word in words)]
    if not searches:
        sys.stderr.write(f"--only: no search has all of {options.only!r}; one is called {every[0].name!r}\n")
        return EXIT_CONFIGURATION
    lines = _lines(searches, run_jobs(run_search, searches, options.jobs, "searches"))
    console = make_console()
    console.print(_table(lines))
    write_json(options.out / "capacities.json", lines)

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
    add_seeds(parser, 3)
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="searches whose model, workload and policy have all of these words"
    )
    add_jobs(parser)
    add_out(parser, "tropical_figure")
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


def _lines(searches: Sequence[Search], founds: Sequence[FoundCapacity]) -> list[Line]:
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
    table = make_table(
        f"requests a second at {PROMISE:.0%} attainment",
        ("model", "workload", "policy", "chunk"),
        ("req/s", "x best baseline", "x the paper's", "runs"),
    )
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


# --- pictures ---------------------------------------------------------------------------------------------------------

COLORS = {"tropical": "C0", "elastic": "C3", "colocated": "0.35", "chunked": "C2", "disaggregated": "C1"}
DASHES = {"reject_late": "--", "2 multiplexing": ":"}


class Curve(Protocol):
    """What a search found for a contender, which runs a policy."""

    @property
    def policy(self) -> str: ...
    @property
    def contender(self) -> str: ...
    @property
    def found(self) -> FoundCapacity: ...


def plot_attainment(folder: Path, lines: Sequence[Line], promise: float) -> Iterator[Path]:
    """Write the pictures and name them."""
    for (model, workload), of_case in groupby(lines, key=lambda line: (line.model, line.workload)):
        yield plot_beside(folder / f"{model}-{workload}".replace(" ", "-"), {f"{model}, {workload}": of_case}, promise)


def plot_beside(path: Path, panels: Mapping[str, Iterable[Curve]], promise: float) -> Path:
    """One picture with a panel for each title."""
    figure = new_figure(6.4 * len(panels), 4.2)
    all_axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (title, curves) in zip(all_axes, panels.items(), strict=True):
        _draw(axes, title, curves, promise)
    all_axes[0].set_ylabel("requests that met both SLOs, %")
    return save(figure, path)


def _draw(axes: "Axes", title: str, curves: Iterable[Curve], promise: float) -> None:
    for curve in curves:
        rates = [trial.rate for trial in curve.found.trials]
        attained = [100 * trial.attainment for trial in curve.found.trials]
        style = next((dash for word, dash in DASHES.items() if word in curve.contender), "-")
        label = f"{curve.contender} ({curve.found.words(promise)}/s)"
        axes.plot(rates, attained, style, marker="o", markersize=3, color=COLORS.get(curve.policy, "C4"), label=label)
    axes.axhline(100 * promise, color="0.6", linestyle="--", linewidth=1)
    axes.set(title=title, ylim=(0, 103), xlim=(0, None))
    axes.set_xlabel("requests a second")
    tidy(axes, has_legend=True)
