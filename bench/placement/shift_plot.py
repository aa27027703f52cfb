"""Attainment over time while traffic changes, with the changes of plans. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from bench.placement.shift import Run

COLORS = {"never": "0.55", "fixed": "C0", "adaptive": "C3", "informed": "C2"}
BIN_S = 20.0


def plot_runs(path: Path, runs: "Sequence[Run]") -> Path:
    """A panel for each seed."""
    seeds = sorted({run.seed for run in runs})
    figure = Figure(figsize=(10.0, 2.6 * len(seeds)), layout="constrained")
    panels = figure.subplots(len(seeds), 1, squeeze=False, sharex=True)[:, 0]
    for axes, seed in zip(panels, seeds, strict=True):
        for run in (run for run in runs if run.seed == seed):
            _draw(axes, run)
        axes.set(title=f"seed {seed}", ylabel="attainment", ylim=(-0.02, 1.04))
        axes.title.set_fontsize("medium")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("time, s")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.savefig(path, dpi=130)
    return path


def _draw(axes: Axes, run: "Run") -> None:
    color = COLORS[run.mode]
    edges = [BIN_S * number for number in range(int(run.end_s // BIN_S) + 1)]
    full = [(edge, edge + BIN_S) for edge in edges if any(edge <= one.at_s < edge + BIN_S for one in run.served)]
    axes.plot(
        [(since + until) / 2 for since, until in full],
        [run.attainment(since, until) for since, until in full],
        color=color,
        linewidth=1.6,
        marker="o",
        markersize=2.5,
        label=run.mode,
    )
    for change in run.changes:
        axes.axvspan(change.from_s, change.until_s, color=color, alpha=0.25, linewidth=0)
        axes.annotate(f"plan {change.plan}", (change.until_s, 0.0), color=color, fontsize=7, rotation=90)
    if run.shift_at_s is not None:
        axes.axvline(run.shift_at_s, color="black", linewidth=0.8, linestyle=":")
