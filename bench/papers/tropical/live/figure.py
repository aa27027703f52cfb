"""Tropical's figure on this machine, smaller: real processes and a real model, beside what the simulator predicts.

    python -m bench.papers.tropical.live [TOPOLOGY] [--quick] [--requests N] [--rounds N] [--rates R ...]
        [--policies NAME ...]
                                [--lengths FILE] [--chunk TOKENS] [--keep-profiles] [--seed N] [--out DIR]

Serves the first service of a topology on two engines of one thread each: a prefill and a multiplexing one, or two
multiplexing ones for policies that do not split. Each policy gets the same requests at several rates over HTTP (open
loop, Poisson, long inputs, short outputs); TTFT SLO 5 times the request's own prefill and TPOT SLO 3 decode steps of an
idle engine, as profiled just before. Meshes with other roles or chunks are up and idle meanwhile; policies are switched
while they run, and take turns. Run it alone: it says what others used of the machine.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from rich.console import Console

from bench.fidelity.predicting import probe_ratios
from bench.harness.arguments import add_out, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import progress_bar
from bench.harness.tables import make_console
from bench.live.http_load import Answer
from bench.live.serving import probe
from bench.papers.tropical.figure import UNSPLIT
from bench.papers.tropical.live.fleets import Fleet
from bench.papers.tropical.live.report import PROMISE, SIDES, by_contender, found, report
from bench.papers.tropical.live.runs import Contender, Model, Run, serve_and_predict
from bench.papers.tropical.live.stage import Stage, choose_rates, say, stage
from bench.papers.tropical.live.workload import made_up_lengths, make_trace, promised, scaled_lengths
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.schema import PolicySpec
from router.policies.registry import with_defaults
from simulation.capacity import FoundCapacity
from simulation.command.policy_names import parse_policy
from simulation.loads.trace_request import TraceRequest

POLICIES = ("colocated", "chunked", "disaggregated", "disaggregated_sjf", "tropical", "elastic")
CHUNK_TOKENS = 256
NUM_RATES, QUICK_NUM_RATES = 3, 1
REQUESTS, QUICK_REQUESTS = 24, 8


def contender_of(policy: PolicySpec, chunk_tokens: int) -> Contender:
    """Chunked prefill has a budget of its own; the others compute prompts in large steps."""
    tokens = chunk_tokens if policy.name == "chunked" else CHUNK_TOKENS
    return Contender(policy, Fleet(policy.name not in UNSPLIT, tokens))


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy at one rate. Turns of one round and rate have the same requests, of other tokens."""

    contender: Contender
    rate: float
    trace: Sequence[TraceRequest]
    seed: str  # of tokens


MakeTrace = Callable[[float, int], list[TraceRequest]]  # at a rate, in a round


def turns(contenders: Sequence[Contender], rates: Sequence[float], rounds: int, make: MakeTrace) -> Iterator[Turn]:
    """Policies alternate, each time another one first, so that what drifts falls on all."""
    for number in range(rounds):
        for index, rate in enumerate(rates):
            first = (number * len(rates) + index) % len(contenders)
            trace = make(rate, number)
            for one in (*contenders[first:], *contenders[:first]):
                yield Turn(one, rate, trace, f"{number} {rate} {one.name}")


def serve(on: Stage, planned: Sequence[Turn]) -> list[Run]:
    runs = []
    with progress_bar() as progress:
        task = progress.add_task("", total=sum(len(turn.trace) for turn in planned))
        for turn in planned:
            progress.update(task, description=f"{turn.contender.name} at {turn.rate:g}/s")
            fleet = turn.contender.fleet
            runs.append(
                serve_and_predict(
                    on.meshes[fleet],
                    on.pids[fleet],
                    on.models[fleet],
                    turn.contender,
                    turn.rate,
                    turn.trace,
                    Random(turn.seed),
                    lambda: progress.advance(task),
                )
            )
    return runs


# --- what is shown ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    contender: str
    policy: str
    found: FoundCapacity


def show(console: Console, runs: Sequence[Run], model: Model, probes: Sequence[Sequence[Answer]]) -> None:
    report(console, runs)
    overheads, physics = model.overheads, model.physics
    console.print(
        f"the simulator knows: {1e3 * overheads.request_s:.1f} ms a request, {1e3 * overheads.step_s:.2f} ms a step, "
        f"beside another engine decode steps {physics.shared_decode:.2f}x, prefills {physics.shared_prefill:.2f}x"
    )
    for when, answers in zip(("before", "after"), probes, strict=True):
        prefill, decode = probe_ratios(answers, model.profiles, overheads)
        console.print(f"idle mesh {when}: prefill {prefill:.2f}x and decode step {decode:.2f}x of the profile")


def write(folder: Path, runs: Sequence[Run]) -> None:
    """All that was measured and simulated, and a picture of it."""
    from bench.papers.tropical.figure import plot_beside

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "live_figure.json", runs)
    panels = {
        name: [
            Line(contender, of_one[0].policy, found(of_one, side)) for contender, of_one in by_contender(runs).items()
        ]
        for name, side in SIDES.items()
    }
    print(f"wrote {folder / 'live_figure.json'} and {plot_beside(folder / 'live_figure', panels, PROMISE)}")


# --- the command ------------------------------------------------------------------------------------------------------


def _policy(text: str) -> PolicySpec:
    try:
        policy = parse_policy(text)
        with_defaults(policy)
    except (ValueError, UserError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return policy


def _arguments() -> argparse.Namespace:
    parser = script_parser("bench.papers.tropical.live", __doc__)
    parser.add_argument("topology", type=Path, nargs="?", default=Path("deploy/topology.toml"), metavar="TOPOLOGY")
    parser.add_argument(
        "--quick", action="store_true", help="one rate, few requests; only costs are measured, if they never were"
    )
    parser.add_argument("--requests", type=int, metavar="N", help=f"of each policy and rate (default: {REQUESTS})")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="times that all is served (default: 1)")
    parser.add_argument("--rates", type=float, nargs="+", metavar="R", help="a second (default: by simulation)")
    parser.add_argument("--policies", type=_policy, nargs="+", metavar="NAME", help="with parameters: NAME:KEY=VALUE")
    parser.add_argument("--lengths", type=Path, metavar="FILE", help="CSV or trace to scale down, for made-up lengths")
    parser.add_argument("--chunk", type=int, default=64, metavar="TOKENS", help="of `chunked` a step (default: 64)")
    parser.add_argument("--keep-profiles", action="store_true", help="use what `mesh profile` or engines measured")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    add_out(parser, "live_figure")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    service = load(options.topology).services[0]
    random = Random(options.seed)
    lengths = scaled_lengths(options.lengths, random) if options.lengths else made_up_lengths(random)
    policies = options.policies or [PolicySpec(name) for name in POLICIES]
    contenders = [contender_of(policy, options.chunk) for policy in policies]
    fleets = sorted({one.fleet for one in contenders}, key=lambda fleet: (not fleet.splits, -fleet.chunk_tokens))
    keeps = options.keep_profiles or options.quick
    with TemporaryDirectory() as folder:
        topologies = {fleet: fleet.write(Path(folder), service) for fleet in fleets}
        with stage(topologies, is_quick=options.quick, keeps=keeps, random=random) as on:
            reference, mesh = on.models[fleets[0]], on.meshes[fleets[0]]
            pool = promised(lengths, next(iter(reference.profiles.values())))
            planned = _plan(options, contenders, on, pool)
            before = probe(mesh, random)
            runs = serve(on, planned)
            probes = before, probe(mesh, random)
    show(make_console(), runs, reference, probes)
    write(options.out, runs)


def _plan(
    options: argparse.Namespace, contenders: Sequence[Contender], on: Stage, pool: Sequence[TraceRequest]
) -> list[Turn]:
    num_requests = options.requests or (QUICK_REQUESTS if options.quick else REQUESTS)
    num_rates = QUICK_NUM_RATES if options.quick else NUM_RATES
    rates = options.rates or choose_rates(contenders, on.models, pool, num_rates)
    planned = list(
        turns(contenders, rates, options.rounds, lambda rate, seed: make_trace(pool, rate, num_requests, seed))
    )
    in_words = ", ".join(f"{rate:g}" for rate in rates)
    say(f"serving {num_requests} requests {len(planned)} times, {in_words} a second")
    return planned


def main() -> None:
    try:
        run(_arguments())
    except UserError as error:
        raise SystemExit(str(error)) from None
