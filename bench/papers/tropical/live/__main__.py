"""Tropical's figure on this machine, smaller: real processes and a real model, beside what the simulator predicts.

    python -m bench.papers.tropical.live [TOPOLOGY] [--requests N] [--rounds N] [--rates R ...] [--out DIR]

Serves the first service of a topology on two engines of one thread each: a prefill and a multiplexing one, or two
multiplexing ones for policies that do not split. Each policy gets the same requests at several rates over HTTP (open
loop, Poisson, long inputs, short outputs); TTFT SLO 5 times the request's own prefill and TPOT SLO 3 decode steps of an
idle engine, as `mesh profile` measured them. Meshes with other roles or chunks are up and idle meanwhile; policies are
switched while they run, and take turns. Run it alone: it says what others used of the machine.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from bench.fidelity.predicting import probe_ratios
from bench.harness.arguments import add_out, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import progress_bar
from bench.harness.tables import make_console, make_table
from bench.live.http_load import Answer
from bench.live.serving import probe
from bench.papers.tropical.live.run import Model, Run, Seen, Stage, attained, make_stage, say, serve_and_predict
from bench.papers.tropical.live.setting import FLEETS, POLICIES, Turn, made_up_lengths, make_turns, promised
from bench.papers.tropical.setting import PROMISE
from mesh.errors import UserError
from mesh.topology.parse import load
from simulation.capacity import Trial, crossing

Side = Callable[[Run], Seen]
SIDES: tuple[Side, Side] = (lambda run: run.measured), (lambda run: run.simulated)


def main() -> None:
    try:
        _run(_arguments())
    except UserError as error:
        raise SystemExit(str(error)) from None


def _arguments() -> argparse.Namespace:
    parser = script_parser("bench.papers.tropical.live", __doc__)
    parser.add_argument("topology", type=Path, nargs="?", default="deploy/topology.toml", metavar="TOPOLOGY")
    parser.add_argument("--requests", type=int, default=24, metavar="N", help="of each policy and rate (default: 24)")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="times that all is served (default: 1)")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.5, 1.2, 1.9], metavar="R", help="a second")
    add_out(parser, "live_figure")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> None:
    service, random = load(options.topology).services[0], Random(0)
    lengths, first = made_up_lengths(random), FLEETS["tropical"]
    with TemporaryDirectory() as folder:
        topologies = {fleet: fleet.write(Path(folder), service) for fleet in dict.fromkeys([first, *FLEETS.values()])}
        with make_stage(topologies, random) as on:
            reference, mesh = on.models[first], on.meshes[first]
            pool = promised(lengths, next(iter(reference.profiles.values())))
            before = probe(mesh, random)
            runs = _serve(on, list(make_turns(pool, options.rates, options.rounds, options.requests)))
            _report(make_console(), runs, reference, {"before": before, "after": probe(mesh, random)})
    write_json(options.out / "live_figure.json", runs)


def _serve(on: Stage, turns: Sequence[Turn]) -> list[Run]:
    runs = []
    say(f"serving {len(turns[0].trace)} requests {len(turns)} times")
    with progress_bar() as progress:
        task = progress.add_task("", total=sum(len(turn.trace) for turn in turns))
        for turn in turns:
            progress.update(task, description=f"{turn.policy} at {turn.rate:g}/s")
            runs.append(serve_and_predict(on, turn, lambda: progress.advance(task)))
    return runs


# --- what is told -----------------------------------------------------------------------------------------------------


def _report(console: Console, runs: Sequence[Run], model: Model, probes: Mapping[str, Sequence[Answer]]) -> None:
    console.print(_attainment_table(runs))
    others, late_ms = fmean(run.others for run in runs), 1e3 * max(run.late_s for run in runs)
    console.print(f"others used {others:.2f} cores; requests were sent at most {late_ms:.0f} ms late")
    physics = model.physics
    beside = f"decode steps {physics.shared_decode:.2f}x, prefills {physics.shared_prefill:.2f}x"
    console.print(f"the simulator knows: beside another engine {beside}")
    for when, answers in probes.items():
        prefill, decode = probe_ratios(answers, model.profiles, model.overheads)
        console.print(f"idle mesh {when}: prefill {prefill:.2f}x and decode step {decode:.2f}x of the profile")


def _attainment_table(runs: Sequence[Run]) -> Table:
    rates = sorted({run.rate for run in runs})
    headings = (*(f"{rate:g}/s" for rate in rates), f"req/s at {PROMISE:.0%}", "same rule and engines")
    table = make_table("requests that met both SLOs, measured | simulated", ("policy",), headings)
    for policy in POLICIES:
        of_one = [run for run in runs if run.policy == policy]
        real, modelled = (trials(of_one, side) for side in SIDES)
        cells = [f"{one.attainment:.0%} | {other.attainment:.0%}" for one, other in zip(real, modelled, strict=True)]
        capacities = (crossing(found, PROMISE).words(PROMISE) for found in (real, modelled))
        table.add_row(policy, *cells, " | ".join(capacities), f"{same_routes(of_one):.0%}")
    return table


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


if __name__ == "__main__":
    main()
