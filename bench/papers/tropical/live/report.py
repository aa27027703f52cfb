"""What was measured and what was predicted, policy by policy, as tables."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from rich.console import Console
from rich.table import Table

from bench.harness.tables import make_table
from bench.papers.tropical.live.runs import Run, Seen, attainments, same_placements, trials
from simulation.capacity import FoundCapacity, crossing

PROMISE = 0.9
Side = Callable[[Run], Seen]


def measured(run: Run) -> Seen:
    return run.measured


def simulated(run: Run) -> Seen:
    return run.simulated


SIDES: Mapping[str, Side] = {"measured": measured, "simulated": simulated}


def by_contender(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.contender, []).append(run)
    return found


def found(runs: Sequence[Run], side: Side) -> FoundCapacity:
    """The rate that one contender served with the promise kept."""
    return crossing(trials(runs, side), PROMISE)


def report(console: Console, runs: Sequence[Run]) -> None:
    console.print(_attainment_table(runs))
    console.print(_latency_table(runs))
    console.print(_rule_table(runs))
    console.print(_differences(runs))
    console.print(_machine(runs))


def _attainment_table(runs: Sequence[Run]) -> Table:
    rates = sorted({run.rate for run in runs})
    table = make_table("requests that met both SLOs, measured | simulated", ("policy",))
    for rate in rates:
        num_requests = sum(len(run.requests) for run in runs if run.rate == rate) // len(by_contender(runs))
        table.add_column(f"{rate:g}/s\n{num_requests} req.", justify="right")
    table.add_column(f"req/s at {PROMISE:.0%}", justify="right")
    for contender, of_one in by_contender(runs).items():
        both = zip(*(trials(of_one, side) for side in SIDES.values()), strict=True)
        cells = [f"{real.attainment:.0%} | {modelled.attainment:.0%}" for real, modelled in both]
        capacities = " | ".join(found(of_one, side).words(PROMISE) for side in SIDES.values())
        table.add_row(contender, *cells, capacities)
    return table


def _latency_table(runs: Sequence[Run]) -> Table:
    """TTFT and TPOT of all that were served, at all rates, and how many kept each."""
    columns = ("TTFT p50, s", "p90", "kept", "TPOT p50, ms", "p90", "kept", "refused")
    table = make_table("all rates, measured | simulated", ("policy",), columns)
    for contender, of_one in by_contender(runs).items():
        sides = [_latencies(of_one, side) for side in SIDES.values()]
        table.add_row(contender, *(" | ".join(both) for both in zip(*sides, strict=True)))
    return table


def _latencies(runs: Sequence[Run], side: Side) -> list[str]:
    served = list(chain.from_iterable(side(run).latencies.values() for run in runs))
    ttft = [latency.ttft_s for latency in served]
    tpot = [1e3 * latency.tpot_s for latency in served if latency.tpot_s is not None]
    kept = attainments(runs, side)
    refused = 1 - len(served) / sum(len(run.requests) for run in runs)
    return [
        *(f"{_percentile(ttft, percent):.2f}" for percent in (50, 90)),
        f"{kept.ttft:.0%}",
        *(f"{_percentile(tpot, percent):.0f}" for percent in (50, 90)),
        f"{kept.tpot:.0%}",
        f"{refused:.0%}",
    ]


def _percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * percent / 100)] if ordered else float("nan")


def _rule_table(runs: Sequence[Run]) -> Table:
    columns = ("measured", "simulated", "same rule and engines")
    table = make_table("why requests went where they went", ("policy", "rule"), columns)
    for contender, of_one in by_contender(runs).items():
        shares = [_rules(of_one, side) for side in SIDES.values()]
        names = contender, f"{same_placements(of_one):.0%}"
        for rule in sorted(shares[0].keys() | shares[1].keys()):
            table.add_row(names[0], rule, *(f"{share.get(rule, 0.0):.0%}" for share in shares), names[1])
            names = "", ""
    return table


def _rules(runs: Sequence[Run], side: Side) -> dict[str, float]:
    rules = Counter(rule for run in runs for rule, _, _ in side(run).placements.values())
    return {rule: number / rules.total() for rule, number in rules.items()}


def _differences(runs: Sequence[Run]) -> str:
    cells = [
        abs(real.attainment - modelled.attainment)
        for of_one in by_contender(runs).values()
        for real, modelled in zip(trials(of_one, measured), trials(of_one, simulated), strict=True)
    ]
    return (
        f"attainment is off its prediction by {100 * statistics.fmean(cells):.0f} points on average, "
        f"{100 * max(cells):.0f} at most, over {len(cells)} pairs of policy and rate"
    )


def _machine(runs: Sequence[Run]) -> str:
    loads = [run.load for run in runs]
    parts = {
        "the mesh": [load.mesh for load in loads],
        "the load generator": [load.client for load in loads],
        "others": [load.others for load in loads],
    }
    used = ", ".join(f"{name} {statistics.fmean(of):.2f} (at most {max(of):.2f})" for name, of in parts.items())
    late_ms = 1e3 * max(load.late_s for load in loads)
    return f"of {loads[0].num_cores} cores used: {used}; requests were sent at most {late_ms:.0f} ms late"
