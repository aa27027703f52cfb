"""Tropical's figure on this machine, smaller: real processes and a real model, beside what the simulator predicts.

    python -m bench.papers.tropical.live [TOPOLOGY] [--requests N] [--rounds N] [--rates R ...] [--policies NAME ...]
        [--keep-profiles] [--out DIR]

Serves the first service of a topology on two engines of one thread each: a prefill and a multiplexing one, or two
multiplexing ones for policies that do not split. Each policy gets the same requests at several rates over HTTP (open
loop, Poisson, long inputs, short outputs); TTFT SLO 5 times the request's own prefill and TPOT SLO 3 decode steps of an
idle engine, as profiled just before. Meshes with other roles or chunks are up and idle meanwhile; policies are switched
while they run, and take turns. Run it alone: it says what others used of the machine.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench.harness.arguments import add_out, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import progress_bar
from bench.harness.tables import make_console
from bench.live.serving import probe
from bench.papers.tropical.live.report import report
from bench.papers.tropical.live.run import Run, Stage, choose_rates, make_stage, say, serve_and_predict
from bench.papers.tropical.live.setting import (
    POLICIES,
    Turn,
    fleet_of,
    made_up_lengths,
    make_trace,
    make_turns,
    promised,
)
from mesh.errors import UserError
from mesh.topology.parse import load

NUM_RATES = 3
DEFAULT_TOPOLOGY = Path("deploy/topology.toml")


def _arguments() -> argparse.Namespace:
    parser = script_parser("bench.papers.tropical.live", __doc__)
    parser.add_argument("topology", type=Path, nargs="?", default=DEFAULT_TOPOLOGY, metavar="TOPOLOGY")
    parser.add_argument("--requests", type=int, default=24, metavar="N", help="of each policy and rate (default: 24)")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="times that all is served (default: 1)")
    parser.add_argument("--rates", type=float, nargs="+", metavar="R", help="a second (default: by simulation)")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES, metavar="NAME")
    parser.add_argument("--keep-profiles", action="store_true", help="use what `mesh profile` or engines measured")
    add_out(parser, "live_figure")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    service, random = load(options.topology).services[0], Random(0)
    lengths = made_up_lengths(random)
    fleets = sorted(set(map(fleet_of, options.policies)), key=lambda fleet: (not fleet.splits, -fleet.chunk_tokens))
    with TemporaryDirectory() as folder:
        topologies = {fleet: fleet.write(Path(folder), service) for fleet in fleets}
        with make_stage(topologies, keeps=options.keep_profiles, random=random) as on:
            reference, mesh = on.models[fleets[0]], on.meshes[fleets[0]]
            pool = promised(lengths, next(iter(reference.profiles.values())))
            rates = options.rates or choose_rates(options.policies, on.models, pool, NUM_RATES)
            turns = make_turns(
                options.policies,
                rates,
                options.rounds,
                lambda rate, seed: make_trace(pool, rate, options.requests, seed),
            )
            before = probe(mesh, random)
            runs = _serve(on, list(turns))
            probes = {"before": before, "after": probe(mesh, random)}
    report(make_console(), runs, reference, probes)
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


def main() -> None:
    try:
        run(_arguments())
    except UserError as error:
        raise SystemExit(str(error)) from None
