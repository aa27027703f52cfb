"""Llumnix's setting in tables: what each contender did, and how many times better than INFaaS rescheduling was."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from rich.table import Table

from bench.harness.plots import new_figure, save, tidy
from bench.harness.tables import make_table
from bench.papers.llumnix.run import Latencies, Result, Sized, Sizing, mean_latencies
from bench.papers.llumnix.setting import INFAAS, LLUMNIX, Case, Contender, Load

RATIOS = ("ttft_mean", "ttft_p99", "tpot_mean", "tpot_p99", "e2e_mean", "e2e_p99")
Group = dict[tuple[Load, Contender], list[Result]]


def by_load(cases: Mapping[Case, Result]) -> Group:
    """The runs that differ by their seed alone."""
    groups: Group = defaultdict(list)
    for case, result in cases.items():
        groups[case.load, case.contender].append(result)
    return groups


def gains_tables(cases: Mapping[Case, Result]) -> Iterator[Table]:
    groups = by_load(cases)
    yield _latencies_table(groups)
    yield _memory_table(groups)
    if gains := best_gains(groups):
        yield _gains_table(gains)


def _latencies_table(groups: Group) -> Table:
    table = make_table("latencies, s", ("load", "req/s", "policy"), ("TTFT mean", "P50", "P99"))
    for heading in ("a token mean, ms", "P99", "request mean", "P99", "failed"):
        table.add_column(heading, justify="right")
    for (load, contender), results in groups.items():
        mean = mean_latencies(results)
        table.add_row(
            load.name,
            f"{load.rate:g}",
            contender.name,
            *(f"{value:.2f}" for value in (mean.ttft_mean, mean.ttft_p50, mean.ttft_p99)),
            *(f"{1e3 * value:.1f}" for value in (mean.tpot_mean, mean.tpot_p99)),
            *(f"{value:.1f}" for value in (mean.e2e_mean, mean.e2e_p99)),
            str(sum(result.num_failed for result in results)),
        )
    return table


def _memory_table(groups: Group) -> Table:
    table = make_table("preemptions and migrations", ("load", "req/s", "policy"), ("preempted, %", "lost, s/request"))
    for heading in ("fragmented, %", "moves/request", "most", "aborted"):
        table.add_column(heading, justify="right")
    for (load, contender), results in groups.items():
        table.add_row(
            load.name,
            f"{load.rate:g}",
            contender.name,
            f"{100 * fmean(result.preempted for result in results):.1f}",
            f"{fmean(result.lost_s for result in results):.3f}",
            f"{100 * fmean(result.fragmented for result in results):.2f}",
            f"{fmean(result.moves for result in results):.3f}",
            str(max(max(result.moved) for result in results)),
            str(sum(result.aborted for result in results)),
        )
    return table


def ratios(groups: Group, load: Load) -> dict[str, float] | None:
    """How many times INFaaS's figure is rescheduling's; None if one of them was not run."""
    if (load, INFAAS) not in groups or (load, LLUMNIX) not in groups:
        return None
    theirs, ours = mean_latencies(groups[load, INFAAS]), mean_latencies(groups[load, LLUMNIX])
    return {name: getattr(theirs, name) / getattr(ours, name) for name in RATIOS}


def best_gains(groups: Group) -> dict[str, dict[str, tuple[float, float]]]:
    """By workload and figure, the greatest ratio of all rates ("up to", as the paper says it), and its rate."""
    best: dict[str, dict[str, tuple[float, float]]] = {}
    for load in dict.fromkeys(load for load, _ in groups):
        for name, ratio in (ratios(groups, load) or {}).items():
            known = best.setdefault(load.name, {})
            known[name] = max(known.get(name, (0.0, 0.0)), (ratio, load.rate))
    return best


def _gains_table(gains: Mapping[str, Mapping[str, tuple[float, float]]]) -> Table:
    table = make_table("up to so many times better than INFaaS (at req/s)", ("load",), RATIOS)
    for load, by_name in gains.items():
        table.add_row(load, *(f"{by_name[name][0]:.2f} ({by_name[name][1]:g})" for name in RATIOS))
    return table


def priorities_table(cases: Mapping[Case, Result]) -> Table:
    """Requests of high priority and the others, when engines heed that and when they do not."""
    table = make_table("priorities: not heeded / heeded = ratio", ("load", "requests"), RATIOS)
    for load in dict.fromkeys(case.load for case in cases):
        runs = {heeds: _of(cases, load, heeds=heeds) for heeds in (False, True)}
        for group in ("high", "normal"):
            without, heeded = (mean_latencies(runs[heeds], group) for heeds in (False, True))
            table.add_row(load.name, group, *(_compared(without, heeded, name) for name in RATIOS))
    return table


def _of(cases: Mapping[Case, Result], load: Load, *, heeds: bool) -> Sequence[Result]:
    return [result for case, result in cases.items() if case.load == load and case.heeds_priorities == heeds]


def _compared(without: Latencies, heeded: Latencies, name: str) -> str:
    before, after = getattr(without, name), getattr(heeded, name)
    scale, digits = (1e3, 0) if name.startswith("tpot") else (1.0, 2)
    return f"{scale * before:.{digits}f} / {scale * after:.{digits}f} = {before / after:.2f}"


def instances_table(sizings: Mapping[Sizing, Sized]) -> Table:
    table = make_table("fewest engines", ("load", "req/s", "policy", "P99 TTFT <=, s"), ("engines", "P99 TTFT, s"))
    for sizing, sized in sizings.items():
        count = sized.num_engines
        table.add_row(
            sizing.load.name,
            f"{sizing.load.rate:g}",
            sizing.contender.name,
            f"{sizing.target_s:g}",
            str(count),
            f"{sized.p99_s[count]:.2f}",
        )
    return table


# --- pictures ---------------------------------------------------------------------------------------------------------

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
    figure = new_figure(3.4 * (len(PANELS) + 1), 2.4 * len(names))
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
        tidy(axes)
    for axes in rows[-1]:
        axes.set_xlabel("requests a second")
    rows[0][0].legend(frameon=False, fontsize="small")
    return save(figure, folder / "gains")


def plot_moves(folder: Path, cases: Mapping[Case, Result]) -> Path:
    """How often requests moved at constant load, by workload, at its highest rate."""
    groups = {load: results for (load, contender), results in by_load(cases).items() if contender == LLUMNIX}
    figure = new_figure(6.4, 4.0)
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
    tidy(axes)
    if groups:
        axes.legend(frameon=False, fontsize="small")
    return save(figure, folder / "moves")


def plot_over_time(folder: Path, cases: Mapping[Case, Result]) -> Path:
    """Fragmented memory during the first run of each workload at its highest rate, as the paper's figure 12."""
    names = list(dict.fromkeys(case.load.name for case in cases))
    figure = new_figure(6.4, 2.0 * len(names))
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
    return save(figure, folder / "fragmentation")
