"""Runs and sweeps as pictures."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.show.picture import Curves, Limit, Look, Panel, Picture, Series, Spot

if TYPE_CHECKING:
    from bench.load.sweep import Sweep

Runs = Mapping[str, Mapping[str, Any]]
PROMISED = (("ttft", "TTFT"), ("tpot", "TPOT"))
OTHERS = (("itl", "Time between tokens"), ("e2el", "End to end"))
OVER_TIME = (
    ("attainment", "SLO attainment, by the time that requests were due", "%"),
    ("arrivals_per_s", "Arrivals, and lost requests (dotted)", "requests a second"),
    ("in_flight", "Requests in flight", ""),
    ("tokens_per_s", "Events with tokens", "a second"),
)


def latencies(runs: Runs, limits_ms: Mapping[str, float]) -> Picture:
    """TTFT and TPOT against what is promised, and over time: median, and up to the 90th percentile."""
    panels = [_distribution(runs, key, title, limits_ms) for key, title in PROMISED]
    for key, title in PROMISED:
        curves = [_band(name, run, key) for name, run in runs.items() if _series(run, f"median_{key}_ms")[1]]
        limits = _promise(key, limits_ms, is_upright=False)
        if curves:
            panels.append(Curves(f"{title} over time", "s", "ms; median, and up to P90", curves, limits))
    return Picture("TTFT and TPOT: share of requests that took at most so long, and over time", panels)


def load(runs: Runs, limits_ms: Mapping[str, float]) -> Picture:
    """What the server had to do meanwhile, and the other latencies."""
    panels = [_over_time(runs, *one) for one in OVER_TIME if any(_series(run, one[0])[1] for run in runs.values())]
    return Picture("Load, and other latencies", [*panels, *(_distribution(runs, *one, limits_ms) for one in OTHERS)])


def sweep_picture(sweeps: "Mapping[str, Sweep]") -> Picture:
    """Attainment with its interval, and goodput, against rate. What was found is marked."""
    lines = {name: sorted(sweep.line()) for name, sweep in sweeps.items() if sweep.line()}
    goals = sorted({sweep.goal.attainment for sweep in sweeps.values()})
    met = [_attainments(name, line) for name, line in lines.items()]
    good = [
        Series(name, [one[0] for one in line], [one[0] * one[1] for one in line], look=Look.MARKED)
        for name, line in lines.items()
    ]
    highest = max((one[0] for line in lines.values() for one in line), default=1.0)
    limits = [Limit(100 * goal, f"promised: {goal:.0%}", is_upright=False) for goal in goals]
    x_label = "arrivals, requests a second"
    return Picture(
        "The highest rate at which requests meet their SLO",
        (
            Curves(
                "SLO attainment", x_label, "requests in time, %", met, limits, _capacities(sweeps), y_range=(0, 100)
            ),
            Curves(
                "Goodput",
                x_label,
                "requests in time, a second",
                [*good, Series("all of them", [0, highest], [0, highest], look=Look.GUIDE)],
            ),
        ),
    )


def _attainments(name: str, line: Sequence[tuple[float, float, float, float]]) -> Series:
    rates, *shares = zip(*line, strict=True)
    met, low, high = ([100 * share for share in values] for values in shares)
    return Series(name, rates, met, low, high, look=Look.MARKED)


def _capacities(sweeps: "Mapping[str, Sweep]") -> list[Spot]:
    """What was found: a rate between those that were tried, unless they all were kept, or none."""
    found = {name: sweep for name, sweep in sweeps.items() if sweep.found is not None and sweep.found.rate > 0}
    spots = []
    for name, sweep in found.items():
        assert sweep.found is not None
        words = f"{sweep.found.words(sweep.goal.attainment)} requests/s"
        goal = 100 * sweep.goal.attainment
        line = sorted(sweep.line())
        met = 100 * line[-1][1] if line and sweep.found.is_beyond(sweep.goal.attainment) else goal
        spots.append(Spot(sweep.found.rate, met, words if len(sweeps) == 1 else f"{name}: {words}"))
    return spots


def _distribution(runs: Runs, key: str, title: str, limits_ms: Mapping[str, float]) -> Panel:
    curves, right = [], limits_ms.get(key, 0.0)
    for name, run in runs.items():
        if values := quantiles_of(run, key):
            curves.append(Series(name, values, list(np.linspace(0, 100, len(values)))))
            right = max(right, values[round(0.995 * (len(values) - 1))])
    limits = _promise(key, limits_ms, is_upright=True)
    return Curves(title, "ms", "requests, %", curves, limits, x_range=(0, 1.05 * right or 1), y_range=(0, 100))


def _promise(key: str, limits_ms: Mapping[str, float], *, is_upright: bool) -> list[Limit]:
    return [Limit(limits_ms[key], f"promise: {limits_ms[key]:g} ms", is_upright)] if key in limits_ms else []


def _band(name: str, run: Mapping[str, Any], key: str) -> Series:
    slices = run.get("over_time", [])
    low, high = (
        [nan if one.get(which) is None else one[which] for one in slices]
        for which in (f"median_{key}_ms", f"p90_{key}_ms")
    )
    return Series(name, [one["at_s"] for one in slices], low, low, high)


def _over_time(runs: Runs, key: str, title: str, unit: str) -> Panel:
    scale = 100 if unit == "%" else 1
    curves = []
    for name, run in runs.items():
        times, values = _series(run, key)
        curves.append(Series(name, times, [scale * value for value in values]))
        lost = _series(run, "lost_per_s") if key == "arrivals_per_s" else ([], [])
        if any(lost[1]):
            curves.append(Series(name, *lost, look=Look.DOTTED))
    return Curves(title, "s", unit, curves, y_range=(0, 100 if unit == "%" else None))


def quantiles_of(run: Mapping[str, Any], key: str) -> list[float]:
    """Of our own results, or of the raw values that ``vllm bench serve --save-detailed`` keeps."""
    if "distributions_ms" in run:
        return list(run["distributions_ms"].get(key, []))
    raw = {"ttft": run.get("ttfts"), "itl": [gap for gaps in run.get("itls") or () for gap in gaps]}.get(key)
    return [1e3 * float(value) for value in np.quantile(raw, np.linspace(0, 1, 201))] if raw else []


def _series(run: Mapping[str, Any], key: str) -> tuple[list[float], list[float]]:
    points = [(one["at_s"], one[key]) for one in run.get("over_time", []) if one.get(key) is not None]
    return [at_s for at_s, _ in points], [value for _, value in points]
