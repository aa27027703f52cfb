"""Measured against simulated latencies as a picture. Needs matplotlib."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from bench.live.agreement import METRICS, Latency, Pairs, pairs_of

SIZE = (12, 7.4)  # inches
DPI = 130
TOLERANCE = 0.1


def plot_agreement(path: Path, title: str, measured: Mapping[str, Latency], simulated: Mapping[str, Latency]) -> None:
    """Above, each request measured against simulated; below, the distributions."""
    figure = Figure(figsize=SIZE, layout="constrained")
    above, below = figure.subplots(2, len(METRICS))
    for each, distributions, metric in zip(above, below, METRICS, strict=True):
        pairs = pairs_of(measured, simulated, metric)
        if pairs:
            _plot_each(each, metric, [(1e3 * real, 1e3 * modelled) for real, modelled in pairs])
            _plot_distributions(distributions, [(1e3 * real, 1e3 * modelled) for real, modelled in pairs])
    figure.suptitle(title)
    figure.savefig(path, dpi=DPI)


def _plot_each(axes: Axes, metric: str, pairs_ms: Pairs) -> None:
    ends = [0.8 * min(map(min, pairs_ms)), 1.25 * max(map(max, pairs_ms))]
    low, high = ([factor * end for end in ends] for factor in (1 - TOLERANCE, 1 + TOLERANCE))
    axes.fill_between(ends, low, high, color="0.5", alpha=0.2, linewidth=0, label=f"within {TOLERANCE:.0%}")
    axes.plot(ends, ends, color="0.5", linewidth=0.8)
    measured_ms, simulated_ms = zip(*pairs_ms, strict=True)
    axes.scatter(measured_ms, simulated_ms, s=12, alpha=0.6, linewidths=0)
    axes.set(title=f"{metric} of each request", xlabel="measured, ms", ylabel="simulated, ms")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5) if ends[1] < 20 * ends[0] else (1,)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    _finish(axes)


def _plot_distributions(axes: Axes, pairs_ms: Pairs) -> None:
    percents = np.linspace(0, 100, 201)
    for label, values in zip(("measured", "simulated"), zip(*pairs_ms, strict=True), strict=True):
        axes.plot(np.percentile(values, percents), percents, label=label)
    axes.set(xlabel="ms", ylabel="requests, %", ylim=(0, 103))
    axes.set_xlim(left=0)
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
