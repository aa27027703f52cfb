"""The testbed's runs in tables: each figure, and the greatest ratios beside those that the paper states."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.table import Table

from bench.harness.tables import make_table
from bench.papers.seallm.testbed.cells import Cell
from bench.papers.seallm.testbed.figures import AXES, RATE_AXIS
from bench.papers.seallm.testbed.run import Result
from bench.papers.seallm.testbed.scene import NUM_DEVICES, Scene

Answers = Mapping[Cell, Result]  # means over seeds, whose seed is 0

PAPERS: Mapping[str, Mapping[str, float]] = {  # "up to so many times better", sections 6.2 and 6.3
    "dedicated": {"mean": 10.38, "p99": 12.13, "attainment": 1.82},
    "alpaserve": {"mean": 9.52, "p99": 5.80, "attainment": 3.64},
    "muxserve": {"mean": 13.60, "p99": 18.69, "attainment": 2.11, "ttft_s": 51.98},
    "-F": {"mean": 4.17, "attainment": 1.37},
    "-M": {"mean": 4.17, "attainment": 1.37},
    "-A": {"mean": 2.44, "attainment": 1.33},
}
MEASURES = {"mean": "mean latency", "p99": "P99", "attainment": "kept", "ttft_s": "TTFT", "scaled": "kept, by scale"}


def figure_table(figure: int, answers: Answers) -> Table:
    axis, varied = AXES.get(figure, RATE_AXIS)
    measures = ("requests", "failed", "mean", "P99", "P99, s", "kept, %", "TTFT, s", "TPOT, ms", "changes")
    table = make_table(f"figure {figure}", (axis, "system"), measures)
    for cell, result in answers.items():
        table.add_row(f"{varied(cell.scene):.3g}", cell.system, *_numbers(result))
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


def scales_table(answers: Answers) -> Table:
    """Show figure 10: attainment, by how many times the mean execution time of its service a request may take."""
    scales = next(iter(answers.values())).by_scale
    table = make_table("figure 10: kept, %, by SLO scale", ("system",), [f"{scale:g}" for scale in scales])
    for cell, result in answers.items():
        table.add_row(cell.system, *(f"{100 * share:.0f}" for share in result.by_scale.values()))
    return table


# --- ratios -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Best:
    """How many times better ours is at most, and where. ``scale``: of the SLO; None for what does not depend on it."""

    ratio: float
    scene: Scene
    scale: float | None = None

    def __str__(self) -> str:
        where = [f"{self.scene.rate:g}/s"]
        where += [f"{self.scene.num_devices} devices"] * (self.scene.num_devices != NUM_DEVICES)
        where += [f"{self.scene.in_a_row} in a row"] * bool(self.scene.in_a_row)
        where += [f"error {self.scene.error:g}"] * bool(self.scene.error)
        where += [] if self.scale is None else [f"SLO scale {self.scale:g}"]
        return f"{self.ratio:.2f}, {', '.join(where)}"


def best_ratios(answers: Answers, ours: str) -> dict[str, dict[str, Best]]:
    """Find how many times better ours is at most in any scene, by system and measure.

    ``scaled``: attainment at the SLO scale where it differs most. Where one side has nothing, there is no ratio.
    """
    best: dict[str, dict[str, Best]] = {}
    for cell, theirs in answers.items():
        own = answers.get(Cell(ours, cell.scene))
        if own is not None and cell.system != ours:
            known = best.setdefault(cell.system, {})
            for measure, found in _ratios(cell.scene, own, theirs):
                if measure not in known or found.ratio > known[measure].ratio:
                    known[measure] = found
    return best


def _ratios(scene: Scene, ours: Result, theirs: Result) -> Iterator[tuple[str, Best]]:
    for measure in ("mean", "p99", "ttft_s"):  # smaller is better
        if getattr(ours, measure) > 0:
            yield measure, Best(getattr(theirs, measure) / getattr(ours, measure), scene)
    if theirs.attainment > 0:
        yield "attainment", Best(ours.attainment / theirs.attainment, scene)
    for scale, share in theirs.by_scale.items():
        if share > 0:
            yield "scaled", Best(ours.by_scale[scale] / share, scene, scale)


def ratios_table(title: str, answers: Answers, ours: str) -> Table:
    """Show ours against each other system, with the paper's best in brackets."""
    table = make_table(f"{title}: {ours} is up to so many times better (the paper's)", ("than", *MEASURES.values()))
    for name, best in best_ratios(answers, ours).items():
        papers = PAPERS.get(name, {})
        table.add_row(
            name,
            *(
                " ".join([str(best.get(measure, "-")), *([f"({papers[measure]:g})"] if measure in papers else [])])
                for measure in MEASURES
            ),
        )
    return table
