"""Summaries as pictures. Needs matplotlib."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.simulation.report import by_policy
from bench.simulation.summary import STEPS, Distribution, Summary
from mesh.topology.schema import Slo

SIZE = (11, 4.2)  # inches
DPI = 150


def plot_rates(path: Path, summaries: Sequence[Summary], slo: Slo) -> None:
    """SLO attainment and goodput against rate, one line a policy."""
    figure = Figure(figsize=SIZE, layout="constrained")
    attainment, goodput = figure.subplots(1, 2)
    for policy, runs in by_policy(summaries).items():
        rates = [run.rate for run in runs]
        attainment.plot(rates, [100 * run.attainment for run in runs], marker="o", markersize=3.5, label=policy)
        goodput.plot(rates, [run.goodput for run in runs], marker="o", markersize=3.5, label=policy)
    attainment.axhline(100 * slo.attainment, color="0.5", linestyle="--", linewidth=1)
    attainment.set(title="SLO attainment", ylabel="requests that met both SLOs, %", ylim=(0, 103))
    goodput.axline((0, 0), slope=1, color="0.5", linestyle="--", linewidth=1)
    goodput.set(title="Goodput", ylabel="requests a second that met both SLOs", ylim=(0, None))
    for axes in (attainment, goodput):
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


def _plot_cdf(
    axes: Axes,
    title: str,
    summaries: Sequence[Summary],
    choose: Callable[[Summary], Distribution | None],
    slo_s: float | None,
) -> None:
    percents = [100 * step / STEPS for step in range(STEPS + 1)]
    for run in summaries:
        distribution = choose(run)
        if distribution is not None:
            axes.plot([1e3 * value for value in distribution.quantiles], percents, label=run.policy)
    if slo_s is not None:
        axes.axvline(1e3 * slo_s, color="0.5", linestyle="--", linewidth=1, label="SLO")
    seen = [distribution.percentile(99) for distribution in map(choose, summaries) if distribution is not None]
    right = 1.05e3 * max([*seen, slo_s or 0.0, 1e-3])  # beyond lie the last few outliers
    axes.set(title=title, xlabel="ms", ylabel="requests, %", ylim=(0, 103), xlim=(0, right))
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize="small")
