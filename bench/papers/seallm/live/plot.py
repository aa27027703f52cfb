"""How contenders' latencies are distributed, and what they are when the traffic shifts. Needs matplotlib."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from bench.papers.seallm.live.report import by_contender, outcomes_of
from bench.papers.seallm.live.run import Run
from bench.papers.seallm.live.setting import NUM_PHASES

STYLES = {
    "db": ("C3", "-"),
    "fcfs": ("C0", "-"),
    "round_robin": ("C1", "-"),
    "slo": ("0.35", "-"),
    "an engine each": ("C2", "-"),
    "plan kept": ("C3", ":"),
    "plans changed": ("C3", "--"),
    "daemon, db": ("C4", "--"),
    "daemon, fcfs": ("C0", "--"),
    "daemon, round_robin": ("C1", "--"),
}
SLICES = 4 * NUM_PHASES  # of the time in which requests arrive


def plot_sharing(folder: Path, runs: Sequence[Run]) -> Path:
    figure = Figure(figsize=(11.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for contender, of_one in by_contender(runs).items():
        color, dashes = STYLES[contender]
        _distribution(left, of_one, contender, color, dashes)
        _course(right, of_one, color, dashes)
    left.set(xscale="log", xlabel="normalised latency", ylabel="requests with less, %", ylim=(0, 101))
    right.set(yscale="log", xlabel="arrival, of the whole time", ylabel="mean normalised latency", xlim=(0, 1))
    for phase in range(1, NUM_PHASES):
        right.axvline(phase / NUM_PHASES, color="0.6", linewidth=1)
    for begun, ended in [change for run in runs for change in run.changes]:
        right.axvspan(begun, ended, color="C3", alpha=0.08, linewidth=0)
    for axes, values in ((left, left.xaxis), (right, right.yaxis)):
        values.set_major_formatter("{x:g}")
        values.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", frameon=False)
    path = folder / "sharing_live.png"
    figure.savefig(path, dpi=150)
    return path


def _distribution(axes: Axes, runs: Sequence[Run], label: str, color: str, dashes: str) -> None:
    values = sorted(one.normalised for one in outcomes_of(runs) if one.is_served)
    below = [100 * (number + 1) / len(values) for number in range(len(values))]
    axes.plot(values, below, dashes, color=color, label=label, linewidth=1.4)


def _course(axes: Axes, runs: Sequence[Run], color: str, dashes: str) -> None:
    slices: list[list[float]] = [[] for _ in range(SLICES)]
    for one in outcomes_of(runs):
        if one.is_served:
            slices[int(one.place * SLICES)].append(one.normalised)
    places = [(number + 0.5) / SLICES for number, values in enumerate(slices) if values]
    axes.plot(places, [statistics.fmean(values) for values in slices if values], dashes, color=color, linewidth=1.4)
