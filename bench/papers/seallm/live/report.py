"""What contenders made of the same requests, as a table."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console

from bench.harness.tables import make_table
from bench.papers.seallm.live.run import Outcome, Run
from bench.simulated import percentile

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


def report(console: Console, runs: Sequence[Run]) -> None:
    services, phases = (sorted({getattr(one, key) for one in runs[0].outcomes}) for key in ("service", "phase"))
    columns = (
        "mean",
        "P99",
        "kept, %",
        ", ".join(services),
        "by phase",
        "mean, times db's",
        "lost",
        "other",
        "plans",
        "moved",
    )
    table = make_table("normalised latency: all requests of all seeds", ("",), columns)
    for contender in dict.fromkeys(run.contender for run in runs):
        of_one = [run for run in runs if run.contender == contender]
        outcomes = [outcome for run in of_one for outcome in run.outcomes]
        summary = Summary.of(outcomes)
        table.add_row(
            contender,
            f"{summary.mean:.2f}",
            f"{summary.p99:.1f}",
            f"{100 * summary.kept:.0f}",
            ", ".join(_mean(one for one in outcomes if one.service == name) for name in services),
            ", ".join(_mean(one for one in outcomes if one.phase == phase) for phase in phases),
            ratios(of_one, [run for run in runs if run.contender == REFERENCE]),
            str(sum(not one.is_served for one in outcomes)),
            str(sum(one.is_served and not one.is_same for one in outcomes)),
            str(sum(run.num_plans for run in of_one)),
            str(sum(run.num_migrated for run in of_one)),
        )
    console.print(table)
    console.print(f"others used {statistics.fmean(run.others for run in runs):.2f} cores meanwhile")


def _mean(outcomes: Iterable[Outcome]) -> str:
    return f"{statistics.fmean(one.normalised for one in outcomes if one.is_served):.2f}"


def ratios(own: Sequence[Run], reference: Sequence[Run]) -> str:
    """Compare mean latencies of the seeds that both served: geometric mean, least and most."""
    theirs = {run.seed: Summary.of(run.outcomes).mean for run in reference}
    found = [Summary.of(run.outcomes).mean / theirs[run.seed] for run in own if run.seed in theirs]
    return f"{statistics.geometric_mean(found):.2f} ({min(found):.2f} to {max(found):.2f})" if found else ""
