"""The simulator against the mesh itself: the same requests at the same times, served here and simulated.

    python -m bench.fidelity [TOPOLOGY] [--rate R] [--requests N] [--prompt A:B] [--answer A:B] [--json FILE]

Starts the topology's mesh on this machine, loads it over HTTP from a process of its own (open loop, Poisson) and
simulates what was sent, twice. With the costs of the engines' own profile (`mesh profile`) and how much engines slow
each other down (`bench.live.sharing`), all measured beforehand: that tells the profile and the simulator. And with the
costs that the engines learnt from their steps meanwhile, which tells the simulator alone: machines are slower on one
day than on another. Overheads are measured beforehand (`bench.live.overheads`); nothing is fitted to the latencies that
are compared. Run it alone: it says what others used of the machine, and how far idle engines are off the profile.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

from rich.console import Console

from bench.fidelity import predicting
from bench.fidelity.predicting import Profiles, Records
from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import progress_bar
from bench.harness.tables import make_console
from bench.live.agreement import agreement_table, agreements
from bench.live.mesh import live_mesh
from bench.live.overheads import Overheads, measure_overheads
from bench.live.serving import OK, TOO_MANY, Learnt, Served, Workload, serve
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from router.history.records import Outcome, Record
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest


def simulate_served(topology: Topology, profiles: Profiles, served: Served, physics: Physics) -> dict[str, Record]:
    """What was sent, when it was sent."""
    trace = [
        TraceRequest(answer.sent_s, len(sending.prompt), sending.max_tokens)
        for sending, answer in zip(served.sendings, served.answers, strict=True)
    ]
    return predicting.simulate(topology, profiles, trace, physics)


def learnt_profiles(profiles: Profiles, learnt: Learnt) -> Profiles:
    """What engines slow each other down is in them already."""
    return {
        engine: replace(profile, prefill=learnt[engine][0], decode=learnt[engine][1])
        for engine, profile in profiles.items()
    }


Predictions = Mapping[str, Records]  # by what the simulation knew of costs


def report(
    console: Console, served: Served, predictions: Predictions, overheads: Overheads, profiles: Profiles
) -> None:
    measured = served.latencies()
    for costs, records in predictions.items():
        simulated = predicting.simulated_latencies(records, overheads)
        title = f"{costs}: {len(measured)} of {len(served.answers)} requests served, {len(simulated)} in the simulation"
        console.print(agreement_table(title, agreements(measured, simulated)))
        console.print(f"the same engines and rule for {_same_placement(served, records):.0%} of the requests")
    console.print(
        f"overheads: {1e3 * overheads.request_s:.1f} ms a request, {1e3 * overheads.step_s:.2f} ms a step, "
        f"KV at {overheads.kv_bytes_per_s / 1e9:.1f} GB/s"
    )
    sharing = served.sharing
    console.print(f"beside another engine: decode steps {sharing.decode:.2f}x, prefills {sharing.prefill:.2f}x")
    console.print(f"machine: {served.contention}; requests were sent at most {1e3 * served.late_s:.0f} ms late")
    for when, probes in (("before", served.probes_before), ("after", served.probes_after)):
        prefill, decode = predicting.probe_ratios(probes, profiles, overheads)
        console.print(f"idle mesh {when}: prefill {prefill:.2f}x and decode step {decode:.2f}x of the profile")


def _same_placement(served: Served, records: Records) -> float:
    same = 0
    for answer in served.answers:
        record = records[f"r{answer.number}"]
        if answer.status == OK:
            placed = (answer.headers["rule"], answer.headers["prefill"], answer.headers["decode"])
            same += placed == (record.rule, record.prefill_engine, record.decode_engine)
        else:
            same += answer.status == TOO_MANY and record.outcome is Outcome.REJECTED
    return same / len(served.answers)


def _bounds(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    if not low.isdecimal() or not high.isdecimal() or not 1 <= int(low) <= int(high):
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; write bounds like 16:256")
    return int(low), int(high)


def _arguments() -> argparse.Namespace:
    parser = script_parser("bench.fidelity", __doc__)
    parser.add_argument("topology", type=Path, nargs="?", default=Path("deploy/topology.toml"), metavar="TOPOLOGY")
    parser.add_argument("--rate", type=float, default=0.5, help="requests a second")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--prompt", type=_bounds, default=(16, 256), metavar="A:B", help="tokens")
    parser.add_argument("--answer", type=_bounds, default=(8, 64), metavar="A:B", help="tokens")
    parser.add_argument("--seed", type=int, default=0)
    add_json(parser)
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> None:
    topology = load(arguments.topology)
    workload = Workload(arguments.requests, arguments.rate, arguments.prompt, arguments.answer)
    with progress_bar() as progress:
        task = progress.add_task("measuring overheads", total=workload.num_requests)
        overheads = measure_overheads(topology)
        progress.update(task, description="starting, warming up, measuring the idle mesh, then serving")
        with live_mesh(arguments.topology) as mesh:
            served = serve(mesh, workload, Random(arguments.seed), lambda: progress.advance(task))
    profiles = {engine.id: predicting.profile_of(engine, topology) for engine in topology.engines}
    physics = predicting.physics_of(overheads, served.sharing)
    as_learnt = replace(physics, shared_decode=1.0, shared_prefill=1.0)
    predictions = {
        "costs of the profile": simulate_served(topology, profiles, served, physics),
        "costs as learnt": simulate_served(topology, learnt_profiles(profiles, served.learnt), served, as_learnt),
    }
    console = make_console()
    report(console, served, predictions, overheads, profiles)
    if arguments.json is not None:
        write_json(arguments.json, {"served": served, "simulated": predictions, "overheads": overheads})


if __name__ == "__main__":
    try:
        run(_arguments())
    except UserError as error:
        raise SystemExit(str(error)) from None
