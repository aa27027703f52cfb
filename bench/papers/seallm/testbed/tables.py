"""The testbed's runs in tables: each figure, and the greatest ratios beside those that the paper states."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from rich.table import Table

from bench.harness.tables import make_table
from bench.papers.seallm.testbed.cells import Cell
from bench.papers.seallm.testbed.figures import varied
from bench.papers.seallm.testbed.run import Result
from bench.papers.seallm.testbed.scene import NUM_DEVICES, Scene
from bench.papers.seallm.testbed.systems import OURS
from bench.placement.log import verdicts
from mesh.wire.placement import Decision

Answers = Mapping[Cell, Result]
Points = Mapping[float, Result]  # by what a figure varies: means over seeds

AXES = {
    6: "requests a second",
    7: "requests a second",
    8: "requests a second",
    9: "requests a second",
    10: "requests a second",
    11: "density (1: 32 devices)",
    12: "requests of a service in a row",
    13: "error of answers' lengths",
}
PAPERS: Mapping[str, Mapping[str, float]] = {  # "up to so many times better", sections 6.2 and 6.3
    "dedicated": {"mean": 10.38, "p99": 12.13, "attainment": 1.82},
    "alpaserve": {"mean": 9.52, "p99": 5.80, "attainment": 3.64},
    "muxserve": {"mean": 13.60, "p99": 18.69, "attainment": 2.11, "ttft_s": 51.98},
    "-F": {"mean": 4.17, "attainment": 1.37},
    "-M": {"mean": 4.17, "attainment": 1.37},
    "-A": {"mean": 2.44, "attainment": 1.33},
}
RATIOS = ("mean", "p99", "attainment", "ttft_s", "tpot_s")
LARGER_IS_BETTER = ("attainment",)


@dataclass(frozen=True, slots=True)
class Best:
    """How many times better ours is at most, and where on the axis."""

    ratio: float
    at: float


def curves(answers: Answers, figure: int, systems: Sequence[str], cells: Sequence[Cell]) -> dict[str, Points]:
    """By system."""
    found: dict[str, dict[float, list[Result]]] = {name: {} for name in systems}
    for cell in cells:
        if cell.system in found:
            found[cell.system].setdefault(varied(figure, cell.scene), []).append(answers[cell])
    return {name: {at: mean_result(runs) for at, runs in by_at.items()} for name, by_at in found.items()}


def mean_result(runs: Sequence[Result]) -> Result:
    """Of seeds. Requests and failures are sums; decisions and changes are those of one after the other."""
    services = {name for run in runs for name in run.by_service}
    return Result(
        num_requests=sum(run.num_requests for run in runs),
        num_failed=sum(run.num_failed for run in runs),
        mean=fmean(run.mean for run in runs),
        p99=fmean(run.p99 for run in runs),
        p99_s=fmean(run.p99_s for run in runs),
        attainment=fmean(run.attainment for run in runs),
        ttft_s=fmean(run.ttft_s for run in runs),
        tpot_s=fmean(run.tpot_s for run in runs),
        by_scale={scale: fmean(run.by_scale[scale] for run in runs) for scale in runs[0].by_scale},
        decisions=[told for run in runs for told in run.decisions],
        changes=[change for run in runs for change in run.changes],
        by_service={
            name: fmean(run.by_service[name] for run in runs if name in run.by_service) for name in sorted(services)
        },
    )


def best_ratios(ours: Points, theirs: Points) -> dict[str, Best]:
    """By measure. Where one side has nothing at all, there is no ratio."""
    best: dict[str, Best] = {}
    for at in sorted(ours.keys() & theirs.keys()):
        for name in RATIOS:
            mine, other = getattr(ours[at], name), getattr(theirs[at], name)
            better, worse = (mine, other) if name in LARGER_IS_BETTER else (other, mine)
            if worse > 0 and (name not in best or better / worse > best[name].ratio):
                best[name] = Best(better / worse, at)
    return best


@dataclass(frozen=True, slots=True)
class Greatest:
    """Of all scenes. ``scale``: of the SLO; None for what does not depend on it."""

    ratio: float
    scene: Scene
    scale: float | None = None

    def __str__(self) -> str:
        where = [f"{self.scene.rate:g}/s"]
        where += [f"{self.scene.num_devices} devices"] * (self.scene.num_devices != NUM_DEVICES)
        where += [f"{self.scene.in_a_row} in a row"] * bool(self.scene.in_a_row)
        where += [f"error {self.scene.error:g}"] * bool(self.scene.error)
        where += [] if self.scale is None else [f"SLO scale {self.scale:g}"]
        return f"{self.ratio:.2f} ({', '.join(where)})"


def greatest_ratios(answers: Answers) -> dict[str, dict[str, Greatest]]:
    """How many times better ours is at most in any scene, by system and measure. Scenes are means over seeds.

    ``scaled``: attainment at the SLO scale where it differs most.
    """
    by_scene: dict[Scene, dict[str, list[Result]]] = {}
    for cell, result in answers.items():
        by_scene.setdefault(replace(cell.scene, seed=0), {}).setdefault(cell.system, []).append(result)
    found: dict[str, dict[str, Greatest]] = {}
    for scene, runs in by_scene.items():
        if OURS.name not in runs:
            continue
        ours = mean_result(runs[OURS.name])
        for name in runs.keys() - {OURS.name}:
            theirs, best = mean_result(runs[name]), found.setdefault(name, {})
            for measure, greatest in _greatest_in(scene, ours, theirs):
                if measure not in best or greatest.ratio > best[measure].ratio:
                    best[measure] = greatest
    return found


def _greatest_in(scene: Scene, ours: Result, theirs: Result) -> Iterator[tuple[str, Greatest]]:
    for measure, best in best_ratios({0.0: ours}, {0.0: theirs}).items():
        yield measure, Greatest(best.ratio, scene)
    for scale, share in theirs.by_scale.items():
        if share > 0:
            yield "scaled", Greatest(ours.by_scale[scale] / share, scene, scale)


def greatest_table(answers: Answers) -> Table:
    """Of all figures that are shown."""
    table = make_table(
        "ours is up to so many times better in any scene",
        ("than", "mean latency", "P99", "promises kept", "TTFT", "kept, by scale"),
    )
    for name, best in sorted(greatest_ratios(answers).items()):
        measures = ("mean", "p99", "attainment", "ttft_s", "scaled")
        table.add_row(name, *(str(best[measure]) if measure in best else "-" for measure in measures))
    return table


def figure_table(figure: int, by_system: Mapping[str, Points]) -> Table:
    table = make_table(f"figure {figure}", ())
    table.add_column(AXES[figure], justify="right")
    table.add_column("system")
    for heading in ("requests", "failed", "mean", "P99", "P99, s", "kept, %", "TTFT, s", "TPOT, ms", "changes"):
        table.add_column(heading, justify="right")
    for at in sorted({at for points in by_system.values() for at in points}):
        for name, points in by_system.items():
            if at in points:
                table.add_row(f"{at:.3g}", name, *_numbers(points[at]))
    return table


def _numbers(result: Result) -> tuple[str, ...]:
    return (
        str(result.num_requests),
        str(result.num_failed),
        f"{result.mean:.2f}",
        f"{result.p99:.1f}",
        f"{result.p99_s:.0f}",
        f"{100 * result.attainment:.1f}",
        f"{result.ttft_s:.2f}",
        f"{1e3 * result.tpot_s:.0f}",
        str(len(result.changes)),
    )


def scales_table(by_system: Mapping[str, Points], rate: float) -> Table:
    """Figure 10: attainment by how many times the mean execution time of its service a request may take."""
    table = make_table(f"figure 10: kept, %, at {rate:g} requests a second, by SLO scale", ("system",))
    shown = {name: points[rate].by_scale for name, points in by_system.items() if rate in points}
    for scale in next(iter(shown.values()), {}):
        table.add_column(f"{scale:g}", justify="right")
    for name, by_scale in shown.items():
        table.add_row(name, *(f"{100 * share:.0f}" for share in by_scale.values()))
    return table


def decisions_table(answers: Answers, cells: Sequence[Cell]) -> Table:
    """What the placement daemon decided in each run, and when. Scores: of the plan in force to the one it found."""
    table = make_table(
        "figure 9: what the placement daemon decided",
        ("run", "verdict"),
        ("at, s", "interval, s", "latency was", "forecast", "kept, %, forecast", "copies"),
    )
    for cell in cells:
        run = f"{cell.system}, seed {cell.scene.seed}"
        for told in answers[cell].decisions:
            table.add_row(run, told.decision.verdict, f"{told.at_s:.0f}", *_decision_words(told.decision))
        if answers[cell].decisions:
            table.add_row(run, verdicts(answers[cell].decisions), end_section=True)
    return table


def _decision_words(decision: Decision) -> Iterator[str]:
    yield f"{decision.interval_s:.0f}"
    yield "" if decision.achieved is None else f"{decision.achieved.normalized_latency:.2f}"
    before, after = decision.predicted, decision.proposed
    if before is None or after is None:
        yield from ("", "", "")
        return
    yield f"{before.normalized_latency:.2f} to {after.normalized_latency:.2f}"
    yield f"{100 * before.attainment:.1f} to {100 * after.attainment:.1f}"
    yield str(decision.num_loads)


def ratios_table(by_system: Mapping[str, Points]) -> Table:
    """The first system (ours) against each other one, the paper's in brackets."""
    ours, *others = by_system
    table = make_table(
        f"{ours} is up to so many times better, at rate (the paper's)",
        ("than",),
        ("mean latency", "P99", "promises kept", "TTFT", "TPOT"),
    )
    for name in others:
        table.add_row(name, *_ratio_words(name, best_ratios(by_system[ours], by_system[name])))
    return table


def _ratio_words(name: str, best: Mapping[str, Best]) -> Iterator[str]:
    for measure in RATIOS:
        found, paper = best.get(measure), PAPERS.get(name, {}).get(measure)
        words = "-" if found is None else f"{found.ratio:.2f} at {found.at:g}"
        yield words if paper is None else f"{words} ({paper:g})"
