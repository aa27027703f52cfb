"""SCLS's evaluation in simulation: eight Llama-2-13B workers on A100s, static batches of slices against whole requests.

    python -m bench.papers.scls [--parts rates ablation lengths workers cost] [--rates R ...] [--seconds 600]
        [--seeds 1] [--jobs N] [--out DIR]

``rates``: throughput and response time of SLS (whole requests), SCLS, and ILS (continuous batching) against the rate.
``ablation``: SO, PM, AB, LB, each with one thing more than the one before. ``lengths``: slices of 16 to 1024 tokens.
``workers``: SCLS's throughput with 1 to 8 workers. All but the first at the middle rate. ``cost``: CPU of
forming batches of 512 requests. Requests and engines are described in `bench.papers.scls.setting`. A run lasts until
the last request has ended, so an overloaded one has a throughput that does not depend on the rate.
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec
from rich.table import Table

from bench.harness.arguments import add_jobs, add_out, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console, make_table
from bench.papers.scls.run import Result, mean, run_case
from bench.papers.scls.setting import (
    LONGEST,
    SLICE_TOKENS,
    Case,
    Kind,
    ablation,
    codefuse_like,
    ils,
    profile,
    slices,
    sls,
)
from engines.scheduling.slices.batching import form_batches
from engines.scheduling.slices.estimates import SliceEstimator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

from bench.harness.plots import new_figure, save, tidy

PARTS = ("rates", "ablation", "lengths", "workers", "cost")
RATES = (10.0, 15.0, 20.0, 25.0, 30.0)
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
WORKERS = (1, 2, 4, 8)
NUM_REQUESTS, ROUNDS = 512, 25  # of the cost of batching
PAPER = {  # least and most of what SCLS gains over the first, in per cent: throughput, mean response time, P95
    (Kind.HF, "SLS"): ((232.3, 315.8), (-82.4, -84.9), (-79.8, -81.0)),
    (Kind.DS, "SLS"): ((82.5, 191.9), (-80.8, -91.1), (-76.6, -88.9)),
    (Kind.DS, "ILS, cautious"): ((61.6, 171.0), (-78.4, -88.3), (-74.6, -85.8)),
}


class Line(msgspec.Struct, frozen=True):
    """A contender under one load: means over the seeds."""

    part: str
    kind: Kind
    contender: str
    rate: float
    slice_tokens: int
    num_workers: int
    result: Result


def main() -> int:
    options = _parse()
    cases = list(_cases(options))
    distinct = list(dict.fromkeys(case for _, case in cases))
    lines = _lines(cases, dict(zip(distinct, run_jobs(run_case, distinct, options.jobs), strict=True)))
    console = make_console(140)
    for part in PARTS[:-1]:
        of_part = [line for line in lines if line.part == part]
        if of_part:
            console.print(_table(part, of_part))
    of_rates = [line for line in lines if line.part == "rates"]
    if of_rates:
        console.print(_beside_the_paper(of_rates))
    if "cost" in options.parts:
        console.print(_cost_table())
    if lines:
        write_json(options.out / "slices.json", lines)

        for path in plot_slices(options.out, lines):
            console.print(f"drew {path}")
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.scls", __doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, metavar="R", help="requests a second")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="of arrivals (default: 600)")
    add_seeds(parser, 1)
    add_jobs(parser)
    add_out(parser, "slices")
    return parser.parse_args()


# --- what is run ------------------------------------------------------------------------------------------------------


def _cases(options: argparse.Namespace) -> Iterator[tuple[tuple[str, int], Case]]:
    """Of which part, and with slices of how many tokens."""
    middle = options.rates[len(options.rates) // 2]
    for kind in Kind:
        for seed in range(options.seeds):
            if "rates" in options.parts:
                for rate in options.rates:
                    for contender in (sls(kind), *(ils() if kind is Kind.DS else ()), slices(kind)):
                        yield ("rates", SLICE_TOKENS), Case(kind, contender, rate, options.seconds, seed)
            if "ablation" in options.parts:
                for contender in ablation(kind):
                    yield ("ablation", SLICE_TOKENS), Case(kind, contender, middle, options.seconds, seed)
            for tokens in LENGTHS if "lengths" in options.parts else ():
                contender = slices(kind, slice_tokens=tokens)
                yield ("lengths", tokens), Case(kind, contender, middle, options.seconds, seed)
            for count in WORKERS if "workers" in options.parts else ():
                yield ("workers", SLICE_TOKENS), Case(kind, slices(kind), middle, options.seconds, seed, count)


def _lines(cases: Sequence[tuple[tuple[str, int], Case]], results: Mapping[Case, Result]) -> list[Line]:
    seeds: dict[tuple[str, Kind, str, float, int, int], list[Result]] = defaultdict(list)
    for (part, tokens), case in cases:
        key = part, case.kind, case.contender.name, case.rate, tokens, case.num_workers
        seeds[key].append(results[case])
    return [Line(*key, mean(of_seeds)) for key, of_seeds in seeds.items()]


# --- what is told -----------------------------------------------------------------------------------------------------


def _table(part: str, lines: Sequence[Line]) -> Table:
    of_a_request = (f"{heading} a request" for heading in ("pads", "invalid", "slices", "preempted"))
    figures = ("req/s", "slice", "workers", "throughput", "mean, s", "P95, s", "spread, s", "batch", *of_a_request)
    table = make_table(part, ("engine", "scheduler"), figures)
    for line in lines:
        result = line.result
        table.add_row(
            line.kind,
            line.contender,
            f"{line.rate:g}",
            str(line.slice_tokens) if line.contender not in ("SLS", "ILS", "ILS, cautious") else "",
            str(line.num_workers),
            *(f"{value:.2f}" for value in (result.throughput, result.mean_s, result.p95_s, result.spread_s)),
            f"{result.batch_size:.1f}" if result.batch_size else "",
            *(f"{value:.0f}" for value in (result.pad_tokens, result.invalid_tokens)),
            *(f"{value:.2f}" for value in (result.slices, result.preempted)),
        )
    return table


def _beside_the_paper(lines: Sequence[Line]) -> Table:
    """What SCLS gains over each other scheduler, over all rates."""
    gains = ("throughput", "paper", "mean response time", "paper", "P95 response time", "paper")
    table = make_table("SCLS against others, per cent: least and most over the rates", ("engine", "against"), gains)
    ours = {(line.kind, line.rate): line.result for line in lines if line.contender == "SCLS"}
    others: dict[tuple[Kind, str], list[tuple[Result, Result]]] = defaultdict(list)
    for line in lines:
        if line.contender != "SCLS":
            others[line.kind, line.contender].append((ours[line.kind, line.rate], line.result))
    for (kind, name), pairs in others.items():
        paper = PAPER.get((kind, name), (None, None, None))
        cells: list[str] = []
        for field, said in zip(("throughput", "mean_s", "p95_s"), paper, strict=True):
            gained = sorted(100 * (getattr(own, field) / getattr(other, field) - 1) for own, other in pairs)
            cells += [f"{gained[0]:+.0f} to {gained[-1]:+.0f}", "" if said is None else f"{said[0]:+g} to {said[1]:+g}"]
        table.add_row(kind, name, *cells)
    return table


def _cost_table() -> Table:
    """CPU time, each time with costs that were not seen before."""
    table = make_table(
        f"forming batches of {NUM_REQUESTS} requests, ms of CPU", ("input lengths",), ("median", "most", "batches")
    )
    random, known = Random(0), profile(Kind.DS)
    slots = known.kv_memory_bytes // known.kv_bytes_per_token
    pools = {
        "CodeFuse-like": [request.num_input for request in codefuse_like()],
        "1 to 60": range(1, 61),
        "1 to 1024, each once": range(1, LONGEST + 1),
    }
    for name, pool in pools.items():
        times, num_batches = list[float](), 0
        for _ in range(ROUNDS):
            lengths = random.sample(pool, NUM_REQUESTS) if len(pool) > NUM_REQUESTS else random.choices(pool, k=512)
            started = time.process_time()
            batches = form_batches(lengths, SliceEstimator(known.prefill, known.decode, slots, SLICE_TOKENS))
            times.append(1e3 * (time.process_time() - started))
            num_batches = len(batches)
        table.add_row(name, f"{statistics.median(times):.2f}", f"{max(times):.2f}", str(num_batches))
    return table


# --- pictures ---------------------------------------------------------------------------------------------------------

COLORS = {"SLS": "0.55", "SCLS": "C3", "ILS, cautious": "C0", "ILS": "C2"}
PANELS = (
    ("throughput", "throughput, requests/s"),
    ("mean_s", "mean response time, s"),
    ("p95_s", "P95 response time, s"),
    ("spread_s", "spread of completion times, s"),
)
LOADS = {"rates": ("rate", "requests a second"), "lengths": ("slice_tokens", "tokens of a slice")}


def plot_slices(folder: Path, lines: Sequence[Line]) -> Iterator[Path]:
    for part, (field, label) in LOADS.items():
        if of_part := [line for line in lines if line.part == part]:
            yield _against(folder / f"slices_{part}", of_part, field, label)
    if of_part := [line for line in lines if line.part == "ablation"]:
        yield _bars(folder / "slices_ablation", of_part)
    if of_part := [line for line in lines if line.part == "workers"]:
        yield _scaling(folder / "slices_workers", of_part)


def _against(path: Path, lines: Sequence[Line], field: str, label: str) -> Path:
    kinds = list(dict.fromkeys(line.kind for line in lines))
    figure = new_figure(13, 3 * len(kinds))
    rows = figure.subplots(len(kinds), len(PANELS), squeeze=False)
    for row, kind in zip(rows, kinds, strict=True):
        for axes, (value, title) in zip(row, PANELS, strict=True):
            for name in dict.fromkeys(line.contender for line in lines if line.kind == kind):
                own = [line for line in lines if line.kind == kind and line.contender == name]
                places = [getattr(line, field) for line in own]
                values = [getattr(line.result, value) for line in own]
                width = 5 if name == "ILS, cautious" else 1.6  # where it is never cautious ILS lies on it
                axes.plot(places, values, marker="o", markersize=4, color=COLORS[name], label=name, linewidth=width)
            if field == "slice_tokens":
                axes.set_xscale("log", base=2)
                axes.set_xticks([line.slice_tokens for line in own], [str(line.slice_tokens) for line in own])
            axes.set(title=f"{kind}: {title}", xlabel=label)
            _tidy(axes)
        row[0].legend(frameon=False, fontsize="small")
    return save(figure, path)


def _bars(path: Path, lines: Sequence[Line]) -> Path:
    kinds = list(dict.fromkeys(line.kind for line in lines))
    figure = new_figure(13, 2.8 * len(kinds))
    rows = figure.subplots(len(kinds), len(PANELS), squeeze=False)
    for row, kind in zip(rows, kinds, strict=True):
        own = [line for line in lines if line.kind == kind]
        for axes, (value, title) in zip(row, PANELS, strict=True):
            names = [line.contender for line in own]
            colors = [COLORS.get(name, "C1") for name in names]
            axes.bar(names, [getattr(line.result, value) for line in own], color=colors)
            axes.set_title(f"{kind}: {title}")
            _tidy(axes)
    return save(figure, path)


def _scaling(path: Path, lines: Sequence[Line]) -> Path:
    figure = new_figure(4.6, 3.4)
    axes = figure.subplots()
    for kind in dict.fromkeys(line.kind for line in lines):
        own = [line for line in lines if line.kind == kind]
        workers = [line.num_workers for line in own]
        (drawn,) = axes.plot(workers, [line.result.throughput for line in own], marker="o", label=f"{kind}")
        first = own[0].result.throughput / workers[0]
        axes.plot(workers, [first * count for count in workers], ":", color=drawn.get_color(), linewidth=1)
    axes.set(title="SCLS; dotted: in proportion", xlabel="workers", ylabel="throughput, requests/s")
    axes.legend(frameon=False)
    _tidy(axes)
    return save(figure, path)


def _tidy(axes: "Axes") -> None:
    axes.set_ylim(0, None)
    tidy(axes)
