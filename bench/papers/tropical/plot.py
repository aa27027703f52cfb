"""SLO attainment against rate, one picture a model and workload, or several side by side. Needs matplotlib."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulation.capacity import FoundCapacity

if TYPE_CHECKING:
    from bench.papers.tropical.figure import Line

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


def plot_attainment(folder: Path, lines: "Sequence[Line]", promise: float) -> Iterator[Path]:
    """Write the pictures and name them."""
    for (model, workload), of_case in groupby(lines, key=lambda line: (line.model, line.workload)):
        yield plot_beside(
            folder / f"{model}-{workload}.png".replace(" ", "-"), {f"{model}, {workload}": of_case}, promise
        )


def plot_beside(path: Path, panels: Mapping[str, Iterable[Curve]], promise: float) -> Path:
    """One picture with a panel for each title."""
    figure = Figure(figsize=(6.4 * len(panels), 4.2), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (title, curves) in zip(all_axes, panels.items(), strict=True):
        _draw(axes, title, curves, promise)
    all_axes[0].set_ylabel("requests that met both SLOs, %")
    figure.savefig(path, dpi=150)
    return path


def _draw(axes: Axes, title: str, curves: Iterable[Curve], promise: float) -> None:
    for curve in curves:
        rates = [trial.rate for trial in curve.found.trials]
        attained = [100 * trial.attainment for trial in curve.found.trials]
        style = next((dash for word, dash in DASHES.items() if word in curve.contender), "-")
        label = f"{curve.contender} ({curve.found.words(promise)}/s)"
        axes.plot(rates, attained, style, marker="o", markersize=3, color=COLORS.get(curve.policy, "C4"), label=label)
    axes.axhline(100 * promise, color="0.6", linestyle="--", linewidth=1)
    axes.set(title=title, ylim=(0, 103), xlim=(0, None))
    axes.set_xlabel("requests a second")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
