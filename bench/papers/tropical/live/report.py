"""What was measured and what was predicted, policy by policy."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from rich.console import Console
from rich.table import Table

from bench.fidelity.predicting import probe_ratios
from bench.harness.tables import make_table
from bench.live.http_load import Answer
from bench.papers.tropical.figure import PROMISE
from bench.papers.tropical.live.run import Model, Run, Seen, attained
from simulation.capacity import Trial, crossing

Side = Callable[[Run], Seen]
SIDES: tuple[Side, Side] = (lambda run: run.measured), (lambda run: run.simulated)


def report(console: Console, runs: Sequence[Run], model: Model, probes: Mapping[str, Sequence[Answer]]) -> None:
    console.print(_attainment_table(runs))
    console.print(_differences(runs))
    others, late_ms = [run.others for run in runs], 1e3 * max(run.late_s for run in runs)
    console.print(
        f"others used {fmean(others):.2f} cores, {max(others):.2f} at most; sent at most {late_ms:.0f} ms late"
    )
    overheads, physics = model.overheads, model.physics
    console.print(
        f"the simulator knows: {1e3 * overheads.request_s:.1f} ms a request, {1e3 * overheads.step_s:.2f} ms a step, "
        f"beside another engine decode steps {physics.shared_decode:.2f}x, prefills {physics.shared_prefill:.2f}x"
    )
    for when, answers in probes.items():
        prefill, decode = probe_ratios(answers, model.profiles, overheads)
        console.print(f"idle mesh {when}: prefill {prefill:.2f}x and decode step {decode:.2f}x of the profile")


def _attainment_table(runs: Sequence[Run]) -> Table:
    rates = sorted({run.rate for run in runs})
    headings = (*(f"{rate:g}/s" for rate in rates), f"req/s at {PROMISE:.0%}", "same rule and engines")
    table = make_table("requests that met both SLOs, measured | simulated", ("policy",), headings)
    for policy, of_one in by_policy(runs).items():
        real, modelled = (trials(of_one, side) for side in SIDES)
        cells = [f"{one.attainment:.0%} | {other.attainment:.0%}" for one, other in zip(real, modelled, strict=True)]
        capacities = (crossing(found, PROMISE).words(PROMISE) for found in (real, modelled))
        table.add_row(policy, *cells, " | ".join(capacities), f"{same_routes(of_one):.0%}")
    return table


def by_policy(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.policy, []).append(run)
    return found


def trials(runs: Sequence[Run], side: Side) -> list[Trial]:
    """Return attainment by rate; requests of all runs at a rate count alike."""
    rates = sorted({run.rate for run in runs})
    return [Trial(rate, attained((run.requests, side(run)) for run in runs if run.rate == rate)) for rate in rates]


def same_routes(runs: Iterable[Run]) -> float:
    """Return the fraction of requests whose rule and engines were predicted, refusals included."""
    return fmean(
        run.measured.routes.get(number) == run.simulated.routes.get(number)
        for run in runs
        for number in range(len(run.requests))
    )


def _differences(runs: Sequence[Run]) -> str:
    points = [
        100 * abs(real.attainment - modelled.attainment)
        for of_one in by_policy(runs).values()
        for real, modelled in zip(*(trials(of_one, side) for side in SIDES), strict=True)
    ]
    return f"attainment is off its prediction by {fmean(points):.0f} points on average, {max(points):.0f} at most"
