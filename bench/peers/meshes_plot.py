"""Attainment against rate, a line for each contestant, a panel for each tightness of the promise. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from simulation.reports.plots import COLORS, GUIDE

Point = tuple[float, float, float, float]  # rate, attainment, and the interval in which that is for sure


def plot(path: Path, panels: Mapping[float, Mapping[str, Sequence[Point]]], goal: float) -> None:
    figure = Figure(figsize=(4.2 * len(panels), 3.8), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (factor, lines) in zip(all_axes, panels.items(), strict=True):
        for color, (name, points) in zip(COLORS, lines.items(), strict=False):
            rates, met, low, high = (100 * np.array(values) for values in zip(*points, strict=True))
            bars = np.array([met - low, high - met]).clip(0)
            axes.errorbar(rates / 100, met, yerr=bars, color=color, marker="o", markersize=4, capsize=2.5, label=name)
        axes.axhline(100 * goal, **GUIDE)
        axes.set(title=f"{factor:g} x the promise", xlabel="requests a second", ylim=(0, 103), xlim=(0, None))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0].set_ylabel("requests that kept it, %")
    all_axes[0].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
