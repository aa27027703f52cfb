"""What contenders made of the same requests, as tables."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.harness.tables import make_table
from bench.papers.runs import percentile
from bench.papers.seallm.live.run import Outcome, Run

REFERENCE = "db"


@dataclass(frozen=True, slots=True)
class Summary:
    """Normalised latencies, and the fraction of all requests with kept promises, of one run or several together."""

    mean: float
    p99: float
    kept: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Summary":
        """Summarize latencies of requests that were served, and promises of all."""
        latencies = [one.normalised for one in outcomes if one.is_served]
        kept = statistics.fmean(one.is_kept for one in outcomes)
        return cls(statistics.fmean(latencies), percentile(latencies, 99), kept)

    def __str__(self) -> str:
        return f"mean {self.mean:.2f}, P99 {self.p99:.1f}, promises kept {self.kept:.0%}"


def by_contender(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.contender, []).append(run)
    return found


def outcomes_of(runs: Iterable[Run]) -> list[Outcome]:
    return [outcome for run in runs for outcome in run.outcomes]


def report(console: Console, runs: Sequence[Run]) -> None:
    console.print(_table(runs))
    if REFERENCE in by_contender(runs):
        console.print(_ratios(runs))
    console.print(_losses(runs))
    for run in runs:
        for place, decision in run.decisions:
            console.print(f"{run.contender}, seed {run.seed}, {place * run.duration_s:.0f} s: {decision.verdict}")
    busiest = max(runs, key=lambda run: run.others)
    console.print(
        f"others used {statistics.fmean(run.others for run in runs):.2f} cores meanwhile, {busiest.others:.2f} at most"
    )


def _table(runs: Sequence[Run]) -> Table:
    services = list(dict.fromkeys(one.service for one in runs[0].outcomes))
    num_phases = 1 + max(one.phase for one in runs[0].outcomes)
    columns = ["mean", "P99", "kept, %", *(f"mean of {name}" for name in sorted(services))]
    columns += [f"phase {phase + 1}" for phase in range(num_phases)]
    table = make_table("normalised latency: all requests of all seeds; by service; by phase", ("",), columns)
    for contender, of_one in by_contender(runs).items():
        outcomes = outcomes_of(of_one)
        summary = Summary.of(outcomes)
        cells = [f"{summary.mean:.2f}", f"{summary.p99:.1f}", f"{100 * summary.kept:.0f}"]
        cells += [_mean(one for one in outcomes if one.service == name) for name in sorted(services)]
        cells += [_mean(one for one in outcomes if one.phase == phase) for phase in range(num_phases)]
        table.add_row(contender, *cells)
    return table


def _mean(outcomes: Iterable[Outcome]) -> str:
    return f"{statistics.fmean(one.normalised for one in outcomes if one.is_served):.2f}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A contender's figure over the reference's, seed by seed: geometric mean, least, most."""

    middle: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.least:.2f} to {self.most:.2f})"


def ratio(own: Sequence[Run], reference: Sequence[Run], figure: Callable[[Summary], float]) -> Ratio:
    """Compare runs of the seeds that both served."""
    theirs = {run.seed: figure(Summary.of(run.outcomes)) for run in reference}
    ratios = [figure(Summary.of(run.outcomes)) / theirs[run.seed] for run in own if run.seed in theirs]
    return Ratio(statistics.geometric_mean(ratios), min(ratios), max(ratios))


def _ratios(runs: Sequence[Run]) -> Table:
    contenders = by_contender(runs)
    table = make_table(f"times {REFERENCE}'s, seed by seed: geometric mean (least to most)", ("",), ("mean", "P99"))
    for contender, of_one in contenders.items():
        if contender != REFERENCE:
            figures: Sequence[Callable[[Summary], float]] = (lambda one: one.mean, lambda one: one.p99)
            table.add_row(contender, *(str(ratio(of_one, contenders[REFERENCE], figure)) for figure in figures))
    return table


def _losses(runs: Sequence[Run]) -> Table:
    columns = ("requests", "failed or lost", "other tokens", "plans changed", "a change took", "requests moved")
    table = make_table("what became of requests", ("",), columns)
    for contender, of_one in by_contender(runs).items():
        outcomes = outcomes_of(of_one)
        num_failed = sum(not one.is_served for one in outcomes)
        num_other = sum(one.is_served and not one.is_same for one in outcomes)
        took_s = [(end - begin) * run.duration_s for run in of_one for begin, end in run.changes]
        table.add_row(
            contender,
            f"{len(outcomes)}",
            f"{num_failed}",
            f"{num_other}",
            f"{sum(run.num_plans for run in of_one)}",
            f"{statistics.fmean(took_s):.1f} s" if took_s else "-",
            f"{sum(run.num_migrated for run in of_one)}",
        )
    return table
