"""Llumnix's setting in pictures: latencies against the rate, moves of a request, fragmented memory over time.

Needs matplotlib.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from bench.papers.llumnix.run import Result, mean_latencies
from bench.papers.llumnix.setting import INFAAS, LLUMNIX, Case
from bench.papers.llumnix.tables import by_load

COLORS = {"round robin": "0.6", "infaas": "C1", "llumnix, dispatch only": "C0", "llumnix": "C3"}
PANELS = {
    "ttft_p99": "TTFT P99, s",
    "ttft_mean": "TTFT mean, s",
    "tpot_p99": "a token P99, s",
    "tpot_mean": "a token mean, s",
    "e2e_p99": "request P99, s",
}


def plot_gains(folder: Path, cases: Mapping[Case, Result]) -> Path:
    """A row of panels for each workload, as the paper's figure 11."""
    groups = by_load(cases)
    names = list(dict.fromkeys(load.name for load, _ in groups))
    contenders = list(dict.fromkeys(contender for _, contender in groups))
    figure = Figure(figsize=(3.4 * (len(PANELS) + 1), 2.4 * len(names)), layout="constrained")
    rows = figure.subplots(len(names), len(PANELS) + 1, squeeze=False)
    for row, name in zip(rows, names, strict=True):
        for contender in contenders:
            loads = sorted(
                (load for load, who in groups if load.name == name and who == contender), key=lambda load: load.rate
            )
            results = [groups[load, contender] for load in loads]
            style = {"marker": "o", "markersize": 3, "color": COLORS[contender.name], "label": contender.name}
            rates = [load.rate for load in loads]
            for axes, key in zip(row, PANELS, strict=False):
                axes.plot(rates, [getattr(mean_latencies(runs), key) for runs in results], **style)
            lost_s = [sum(run.lost_s for run in runs) / len(runs) for runs in results]
            row[-1].plot(rates, lost_s, **style)
        row[0].set_ylabel(name)
    for axes, title in zip(rows[0], [*PANELS.values(), "preemption loss, s a request"], strict=True):
        axes.set_title(title)
    for axes in rows.flat:
        axes.set_ylim(0, None)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in rows[-1]:
        axes.set_xlabel("requests a second")
    rows[0][0].legend(frameon=False, fontsize="small")
    return _save(figure, folder / "gains.png")


def plot_moves(folder: Path, cases: Mapping[Case, Result]) -> Path:
    """How often requests moved at constant load, by workload, at its highest rate."""
    groups = {load: results for (load, contender), results in by_load(cases).items() if contender == LLUMNIX}
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(load.name for load in groups):
        load = max((load for load in groups if load.name == name), key=lambda load: load.rate)
        moved = Counter[int]()
        for result in groups[load]:
            moved.update(result.moved)
        counts = range(max(moved) + 1)
        total = moved.total()
        beyond = [sum(moved[more] for more in counts if more >= count) / total for count in counts]
        axes.plot(counts, beyond, marker="o", markersize=3, label=f"{name}, {load.rate:g}/s")
    axes.set(xlabel="moves", ylabel="share of requests that moved so often or more", yscale="log")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if groups:
        axes.legend(frameon=False, fontsize="small")
    return _save(figure, folder / "moves.png")


def plot_over_time(folder: Path, cases: Mapping[Case, Result]) -> Path:
    """Fragmented memory during the first run of each workload at its highest rate, as the paper's figure 12."""
    names = list(dict.fromkeys(case.load.name for case in cases))
    figure = Figure(figsize=(6.4, 2.0 * len(names)), layout="constrained")
    rows = figure.subplots(len(names), 1, squeeze=False)[:, 0]
    for axes, name in zip(rows, names, strict=True):
        rate = max(case.load.rate for case in cases if case.load.name == name)
        for case, result in cases.items():
            is_shown = case.load.name == name and case.load.rate == rate and case.seed == 0
            if is_shown and case.contender in (INFAAS, LLUMNIX):
                times, shares = zip(*result.samples, strict=True)
                label = f"{case.contender.name} ({100 * result.fragmented:.1f} %)"
                axes.plot(times, [100 * share for share in shares], color=COLORS[case.contender.name], label=label)
        axes.set(title=f"{name}, {rate:g} requests a second", ylabel="fragmented, %", ylim=(0, None))
        axes.legend(frameon=False, fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    rows[-1].set_xlabel("s")
    return _save(figure, folder / "fragmentation.png")


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    return path
