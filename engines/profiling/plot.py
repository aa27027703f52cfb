"""Measured against predicted times as a picture. Needs matplotlib."""

from collections.abc import Iterable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from engines.costs.measuring import DecodePoint, MixedPoint, PrefillPoint, Times, predict_s
from engines.costs.step_cost import StepCost

SIZE = (15, 4.8)  # inches
DPI = 150
TOLERANCE = 0.1
PANELS = (("Prefill", PrefillPoint), ("Decode step", DecodePoint), ("Both in one step", MixedPoint))


def plot_profile(path: Path, title: str, cost: StepCost, fitted: Times, held_out: Times) -> None:
    """Prefills, decode steps and both in one side by side; the band is 10 % around a perfect prediction."""
    figure = Figure(figsize=SIZE, layout="constrained")
    figure.suptitle(title)
    panels = [(name, kind) for name, kind in PANELS if any(type(point) is kind for point in (*fitted, *held_out))]
    for axes, (name, kind) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _scatter(axes, cost, fitted, kind, "fitted", "tab:blue")
        _scatter(axes, cost, held_out, kind, "held out", "tab:orange")
        _band(axes, [time_s for times in (fitted, held_out) for point, time_s in times.items() if type(point) is kind])
        axes.set(title=name, xlabel="measured, ms", ylabel="predicted, ms", xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.legend(frameon=False)
        axes.grid(alpha=0.3, which="both", linewidth=0.5)
    figure.savefig(path, dpi=DPI)


def _scatter(axes: Axes, cost: StepCost, times: Times, kind: type, label: str, colour: str) -> None:
    chosen = [point for point in times if type(point) is kind]
    measured = [1000 * times[point] for point in chosen]
    predicted = [1000 * predict_s(cost, point) for point in chosen]
    axes.scatter(measured, predicted, s=18, alpha=0.8, label=label, color=colour, linewidths=0)


def _band(axes: Axes, times_s: Iterable[float]) -> None:
    ends_ms = [1000 * bound for bound in _bounds(list(times_s))]
    low, high = ([factor * end for end in ends_ms] for factor in (1 - TOLERANCE, 1 + TOLERANCE))
    axes.fill_between(ends_ms, low, high, color="0.5", alpha=0.2, linewidth=0, label="within 10 %")
    axes.plot(ends_ms, ends_ms, color="0.5", linewidth=0.8)


def _bounds(times_s: list[float]) -> tuple[float, float]:
    return 0.8 * min(times_s), 1.25 * max(times_s)
