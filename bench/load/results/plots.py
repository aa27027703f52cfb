"""Runs as drawings for a page. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bench.harness.plots import element_of, tidy
from simulation.reports.plots import COLORS, GUIDE

SIZE, WIDE = (10.5, 3.1), (10.5, 2.5)  # inches
Runs = Mapping[str, Mapping[str, Any]]
LATENCIES = (("ttft", "TTFT"), ("tpot", "TPOT"), ("itl", "Time between tokens"), ("e2el", "End to end"))
OVER_TIME = (
    (("arrivals_per_s", "lost_per_s"), "Arrivals, and lost requests (dotted)", "requests a second"),
    (("in_flight",), "Requests in flight", ""),
    (("tokens_per_s",), "Events with tokens", "a second"),
    (("attainment",), "SLO attainment, by the time that requests were due", "%"),
)


def distributions(runs: Runs, limits_ms: Mapping[str, float]) -> str:
    """Cumulative distributions of latencies, one line a run, as SVG."""
    figure = Figure(figsize=SIZE, layout="constrained")
    for axes, (key, title) in zip(figure.subplots(1, len(LATENCIES), sharey=True), LATENCIES, strict=True):
        right = 0.0
        for color, (name, run) in _colored(runs):
            values = quantiles_of(run, key)
            if values:
                axes.plot(values, np.linspace(0, 100, len(values)), color=color, label=name, linewidth=1.6)
                right = max(right, values[round(0.995 * (len(values) - 1))])
        if key in limits_ms:
            axes.axvline(limits_ms[key], **GUIDE)
            right = max(right, limits_ms[key])
        axes.set(title=title, xlabel="ms", ylim=(0, 102), xlim=(0, 1.05 * right or 1))
        tidy(axes, has_legend=key == "ttft" and len(runs) > 1)
    figure.axes[0].set_ylabel("requests, %")
    return element_of(figure)


def over_time(runs: Runs) -> str:
    """Load, throughput and attainment over time, one line a run, as SVG. Empty if no run has them."""
    drawn = [line for line in OVER_TIME if any(_series(run, line[0][0])[1] for run in runs.values())]
    if not drawn:
        return ""
    figure = Figure(figsize=(WIDE[0], WIDE[1] * ((len(drawn) + 1) // 2)), layout="constrained")
    grid = np.atleast_1d(figure.subplots((len(drawn) + 1) // 2, 2 if len(drawn) > 1 else 1)).ravel()
    for axes, (keys, title, unit) in zip(grid, drawn, strict=False):
        for color, (name, run) in _colored(runs):
            for key, style in zip(keys, ("-", ":"), strict=False):
                times, values = _series(run, key)
                if any(values) or (values and style == "-"):
                    scaled = [100 * value if unit == "%" else value for value in values]
                    label = name if style == "-" else None
                    axes.plot(times, scaled, color=color, linestyle=style, label=label, linewidth=1.4)
        axes.set(title=title, ylabel=unit, ylim=(0, 103) if unit == "%" else (0, None), xlim=(0, None))
        axes.set_xlabel("s")
        tidy(axes, has_legend=axes is grid[0] and len(runs) > 1)
    for axes in grid[len(drawn) :]:
        axes.set_visible(False)
    return element_of(figure)


def attainment_against_rate(lines: Mapping[str, Sequence[tuple[float, float, float, float]]], goal: float) -> str:
    """Of each line: (rate, attainment, and its confidence interval), as SVG."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for color, (name, points) in zip(_colors(), lines.items(), strict=False):
        rates, met, low, high = (np.array(values) for values in zip(*sorted(points), strict=True))
        bars = 100 * np.array([met - low, high - met])
        axes.errorbar(
            rates,
            100 * met,
            yerr=bars.clip(0),
            color=color,
            marker="o",
            markersize=4,
            capsize=2.5,
            linewidth=1.5,
            label=name,
        )
    axes.axhline(100 * goal, **GUIDE)
    axes.set(
        xlabel="arrivals, requests a second", ylabel="requests that met their SLO, %", ylim=(0, 103), xlim=(0, None)
    )
    tidy(axes, has_legend=True)
    return element_of(figure)


def quantiles_of(run: Mapping[str, Any], key: str) -> list[float]:
    """Of our own results, or of the raw values that ``vllm bench serve --save-detailed`` keeps."""
    if "distributions_ms" in run:
        return list(run["distributions_ms"].get(key, []))
    raw = {"ttft": run.get("ttfts"), "itl": [gap for gaps in run.get("itls") or () for gap in gaps]}.get(key)
    return [1e3 * float(value) for value in np.quantile(raw, np.linspace(0, 1, 201))] if raw else []


def _series(run: Mapping[str, Any], key: str) -> tuple[list[float], list[float]]:
    points = [(one["at_s"], one[key]) for one in run.get("over_time", []) if one.get(key) is not None]
    return [at_s for at_s, _ in points], [value for _, value in points]


def _colored(runs: Runs) -> Sequence[tuple[str, tuple[str, Mapping[str, Any]]]]:
    return list(zip(_colors(), runs.items(), strict=False))


def _colors() -> list[str]:
    return [*COLORS] * 8
