"""Summaries as pictures. Needs matplotlib."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulation.reports.summary import STEPS, Distribution, Summary
from simulation.reports.tables import by_policy

SIZE = (11, 4.2)  # inches
TALL = (11, 7.5)
DPI = 150
COLORS = ("#1f77b4", "#d9822b", "#2ca02c", "#a05195", "#c0392b", "#7f7f7f", "#8c6d31", "#17a2b8")
FAR_LATE = 5  # times a promise, from which on a plain axis would squeeze all that is in time
LEAST_RATIO = 0.05  # where its logarithm begins
GUIDE: dict[str, Any] = {"color": "0.45", "linestyle": "--", "linewidth": 1}

Choose = Callable[[Summary], Distribution | None]


def plot_rates(path: Path, summaries: Sequence[Summary], attainment: float) -> None:
    """SLO attainment and goodput against rate, one line a policy."""
    figure = Figure(figsize=SIZE, layout="constrained")
    met, goodput = figure.subplots(1, 2)
    for color, (policy, runs) in zip(_colors(), by_policy(summaries).items(), strict=False):
        rates = [run.rate for run in runs]
        style = {"marker": "o", "markersize": 3.5, "color": color, "label": policy}
        met.plot(rates, [100 * run.attainment for run in runs], **style)
        goodput.plot(rates, [run.goodput for run in runs], **style)
    met.axhline(100 * attainment, **GUIDE)
    met.set(title="SLO attainment", ylabel="requests that met both SLOs, %", ylim=(0, 103))
    goodput.axline((0, 0), slope=1, **GUIDE)
    goodput.set(title="Goodput", ylabel="requests a second that met both SLOs", xlim=(0, None), ylim=(0, None))
    met.set_xlim(0, None)
    for axes in (met, goodput):
        axes.set_xlabel("arrivals, requests a second")
        _finish(axes)
    figure.savefig(path, dpi=DPI)


def plot_distributions(
    path: Path, summaries: Sequence[Summary], slo_ttft_s: float | None, slo_tpot_s: float | None
) -> None:
    """Cumulative distributions of TTFT, TPOT and queueing at one rate, one line a policy. None: promises differ."""
    figure = Figure(figsize=SIZE, layout="constrained")
    ttft, tpot, queued = figure.subplots(1, 3)
    _plot_cdf(ttft, "TTFT", summaries, lambda run: run.ttft, slo_ttft_s)
    _plot_cdf(tpot, "TPOT", summaries, lambda run: run.tpot, slo_tpot_s)
    _plot_cdf(queued, "Queueing at the gateway", summaries, lambda run: run.queued, None)
    figure.suptitle(f"{summaries[0].rate:.2f} requests a second")
    figure.savefig(path, dpi=DPI)


def plot_ratios(path: Path, summaries: Sequence[Summary], attainment: float) -> None:
    """Cumulative distributions of TTFT and TPOT over what each request was promised, one line a policy."""
    figure = Figure(figsize=SIZE, layout="constrained")
    for axes, name, choose in zip(figure.subplots(1, 2), ("TTFT", "TPOT"), _RATIOS, strict=True):
        for color, run in zip(_colors(), summaries, strict=False):
            distribution = choose(run)
            if distribution is not None:
                share = distribution.num_values / run.num_requests
                percents = [share * percent for percent in _PERCENTS]
                axes.plot(distribution.quantiles, percents, color=color, label=run.policy)
        axes.axvline(1.0, **GUIDE)
        axes.axhline(100 * attainment, **(GUIDE | {"linestyle": ":"}))
        axes.set(title=f"{name} over its SLO", xlabel=f"{name} / SLO", ylabel="all requests, lost ones too, %")
        right = _right(summaries, choose, 1.0)
        axes.set(xlim=(0, right), ylim=(0, 103))
        if right > FAR_LATE:
            axes.set(xscale="log", xlim=(LEAST_RATIO, right))
            axes.xaxis.set_major_formatter("{x:g}")
        _finish(axes)
    figure.suptitle(f"{summaries[0].rate:.2f} requests a second")
    figure.savefig(path, dpi=DPI)


def plot_over_time(path: Path, summaries: Sequence[Summary], attainment: float) -> None:
    """Arrivals, queueing and attainment by the time of arrival at one rate, one line a policy."""
    figure = Figure(figsize=TALL, layout="constrained")
    arrivals, queued, met = figure.subplots(3, 1, sharex=True)
    moments = summaries[0].moments
    arrivals.plot(
        [moment.at_s for moment in moments], [moment.arrivals for moment in moments], color="0.3", label="arrivals"
    )
    for color, run in zip(_colors(), summaries, strict=False):
        times = [moment.at_s for moment in run.moments]
        lost = [moment.lost for moment in run.moments]
        if any(lost):
            arrivals.plot(times, lost, color=color, linestyle=":", label=f"{run.policy}: lost")
        median, most = ([getattr(moment, key) for moment in run.moments] for key in ("queued_p50_s", "queued_p90_s"))
        low, high = ([float("nan") if value is None else value for value in values] for values in (median, most))
        queued.fill_between(times, low, high, color=color, alpha=0.2, linewidth=0)
        queued.plot(times, low, color=color, label=run.policy)
        good = [None if moment.attainment is None else 100 * moment.attainment for moment in run.moments]
        met.plot(times, [float("nan") if value is None else value for value in good], color=color, label=run.policy)
    arrivals.set(title="Arrivals", ylabel="requests a second", ylim=(0, None))
    queued.set(title="Queueing at the gateway: median, and up to the 90th percentile", ylabel="s", ylim=(0, None))
    met.axhline(100 * attainment, **GUIDE)
    met.set(title="SLO attainment", ylabel="requests that met both SLOs, %", ylim=(0, 103))
    met.set_xlabel("time of arrival, s")
    for axes in (arrivals, queued, met):
        axes.margins(x=0.01)
        _finish(axes)
    figure.savefig(path, dpi=DPI)


def _plot_cdf(axes: Axes, title: str, summaries: Sequence[Summary], choose: Choose, slo_s: float | None) -> None:
    for color, run in zip(_colors(), summaries, strict=False):
        distribution = choose(run)
        if distribution is not None:
            axes.plot([1e3 * value for value in distribution.quantiles], _PERCENTS, color=color, label=run.policy)
    if slo_s is not None:
        axes.axvline(1e3 * slo_s, **GUIDE, label="SLO")
    right = 1e3 * _right(summaries, choose, slo_s or 1e-3)
    axes.set(title=title, xlabel="ms", ylabel="requests, %", ylim=(0, 103), xlim=(0, right))
    _finish(axes)


_PERCENTS = [100 * step / STEPS for step in range(STEPS + 1)]
_RATIOS: tuple[Choose, Choose] = (lambda run: run.ttft_ratio, lambda run: run.tpot_ratio)


def _right(summaries: Sequence[Summary], choose: Choose, least: float) -> float:
    """Where a cumulative distribution is cut off: beyond lie the last few outliers."""
    seen = [distribution.percentile(99) for distribution in map(choose, summaries) if distribution is not None]
    return 1.05 * max([*seen, least])


def _colors() -> list[str]:
    return [*COLORS] * 8


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize="small")
