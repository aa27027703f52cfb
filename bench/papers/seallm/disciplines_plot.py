"""What disciplines make of a load, by its rate. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from bench.papers.seallm.disciplines import Line

COLORS = {"db": "C3", "slo": "0.35", "fcfs": "C0", "sjf": "C2", "round_robin": "C1", "mlfq": "C4"}
PANELS = (("mean", "mean normalised latency"), ("p99", "P99 normalised latency"), ("attainment", "promises kept"))


def plot_disciplines(folder: Path, lines: "Sequence[Line]") -> Path:
    """A row of panels for each number of services, Poisson arrivals; dashed: to the letter of the paper."""
    lines = [line for line in lines if line.process == "poisson"]
    settings = list(dict.fromkeys(line.setting for line in lines))
    figure = Figure(figsize=(10.5, 3.2 * max(1, len(settings))), layout="constrained")
    rows = figure.subplots(max(1, len(settings)), len(PANELS), squeeze=False)
    for row, setting in zip(rows, settings, strict=False):
        for axes, (field, label) in zip(row, PANELS, strict=True):
            _panel(axes, [line for line in lines if line.setting == setting], field)
            axes.set(title=f"{setting}: {label}", xlabel="requests a second")
            axes.title.set_fontsize("medium")
    handles, labels = rows[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    path = folder / "disciplines.png"
    figure.savefig(path, dpi=150)
    return path


def _some(value: float, place: float) -> str:
    """Labels of a logarithmic axis that do not run into each other."""
    return f"{value:g}" if f"{value:e}"[0] in "25" else ""


def _panel(axes: Axes, lines: "Sequence[Line]", field: str) -> None:
    for contender in dict.fromkeys(line.contender for line in lines):
        own = [line for line in lines if line.contender == contender]
        scheduling, is_strict = contender.removesuffix(", strict"), contender.endswith(", strict")
        axes.plot(
            [line.rate for line in own],
            [getattr(line.result, field) for line in own],
            color=COLORS[scheduling],
            linestyle="--" if is_strict else "-",
            linewidth=2.2 if contender == "db" else 1.2,
            marker="o",
            markersize=3,
            label=contender,
        )
    if field != "attainment":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(_some)
    axes.grid(alpha=0.25, which="both")
    axes.spines[["top", "right"]].set_visible(False)
