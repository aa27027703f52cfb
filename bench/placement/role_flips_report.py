"""Tables and the picture of `bench.placement.role_flips`."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from bench.placement.role_flips_run import NUM_ENGINES, SETTLED_S, TPOT_SLO_S, Contender, Flip, Result, Run
from mesh.wire.control import Role

Results = Mapping[Run, Result]
COLORS = {"tropical": "C0", "elastic": "C3"}
HALF = NUM_ENGINES // 2


def shifting_table(results: Results) -> Table:
    """Means over the seeds; of all requests also the least and the most."""
    some = next(iter(results))
    table = Table(title="both SLOs met, % of requests, by phase", title_justify="left")
    table.add_column("policy, prefill + multiplexing")
    for heading in (*(phase.name for phase in some.phases), "all (least, most)", "goodput", "flips", "late/h"):
        table.add_column(heading, justify="right")
    for contender, runs in by_contender(results).items():
        by_phase = [
            statistics.fmean(result.by_phase[number] for result in runs.values()) for number in range(len(some.phases))
        ]
        cells = [f"{100 * share:.1f}" for share in by_phase]
        table.add_row(contender.name, *cells, _spread(runs), _goodput(runs), *_flips(runs))
    return table


def steady_table(results: Results) -> Table:
    """Loads that stay the same: flips at first, and those an hour that come later."""
    table = Table(
        title=f"loads that stay the same; late flips come {SETTLED_S:g} s after the start", title_justify="left"
    )
    table.add_column("load")
    table.add_column("policy, prefill + multiplexing")
    for heading in ("both SLOs, % (least, most)", "goodput", "flips", "late/h"):
        table.add_column(heading, justify="right")
    for load in dict.fromkeys(run.load for run in results):
        of_load = {run: result for run, result in results.items() if run.load == load}
        for contender, runs in by_contender(of_load).items():
            table.add_row(load, contender.name, _spread(runs), _goodput(runs), *_flips(runs))
    return table


def by_contender(results: Results) -> dict[Contender, dict[Run, Result]]:
    """In order of first appearance."""
    contenders = dict.fromkeys(run.contender for run in results)
    return {one: {run: result for run, result in results.items() if run.contender == one} for one in contenders}


def _spread(runs: Results) -> str:
    shares = [100 * result.attainment for result in runs.values()]
    return f"{statistics.fmean(shares):.1f} ({min(shares):.1f}, {max(shares):.1f})"


def _goodput(runs: Results) -> str:
    return f"{statistics.fmean(result.goodput for result in runs.values()):.2f}"


def _flips(runs: Results) -> tuple[str, str]:
    """Of a run on average, and late ones an hour."""
    if not next(iter(runs)).contender.flips:
        return "", ""
    late = statistics.fmean(run.late_flips_per_hour(result.flips) for run, result in runs.items())
    return f"{statistics.fmean(len(result.flips) for result in runs.values()):.1f}", f"{late:.1f}"


# --- the picture ------------------------------------------------------------------------------------------------------


def plot(path: Path, results: Results) -> Path:
    """Attainment and prefill engines over time, of the first seed, for those that start with an even split."""
    from matplotlib.figure import Figure

    shown = {run: result for run, result in results.items() if run.seed == 0 and run.contender.num_prefill == HALF}
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    met, split = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for run, result in shown.items():
        style = {"color": COLORS[run.contender.policy], "linestyle": "-" if run.contender.flips else ":"}
        moments = [moment for moment in result.moments if moment.attainment is not None]
        met.plot(
            [moment.at_s for moment in moments],
            [100 * (moment.attainment or 0.0) for moment in moments],
            label=run.contender.name,
            **style,
        )
        times, counts = prefill_engines(run, result.flips)
        split.step(times, counts, where="post", **style)
        split.plot(times[1:-1], counts[1:-1], "o", markersize=4, color=style["color"])
    for run in list(shown)[:1]:
        for number, phase in enumerate(run.phases):
            for axes in (met, split):
                axes.axvline(number * run.phase_s, color="0.6", linewidth=0.8)
            met.annotate(phase.name, (number * run.phase_s, 104), xytext=(4, 0), textcoords="offset points")
        met.set_xlim(0, run.span_s)
    met.set(ylabel="requests that met both SLOs, %", ylim=(0, 111))
    met.set_title(
        f"TTFT 5 times the unloaded prefill, TPOT {1e3 * TPOT_SLO_S:g} ms; by time of arrival", fontsize="medium"
    )
    split.set(ylabel="prefill engines", xlabel="s", ylim=(0, 8))
    met.legend(frameon=False, fontsize="small", loc="lower right")
    for axes in (met, split):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    return path


def prefill_engines(run: Run, flips: Sequence[Flip]) -> tuple[list[float], list[int]]:
    """How many there are from each time on, from the start to the end of the load."""
    times, counts = [0.0], [run.contender.num_prefill]
    for flip in flips:
        if flip.at_s < run.span_s:
            times.append(flip.at_s)
            counts.append(counts[-1] + (1 if flip.role == Role.PREFILL else -1))
    return [*times, run.span_s], [*counts, counts[-1]]
