"""The simulator against the mesh itself: the same requests at the same times, served here and simulated.

    python -m bench.fidelity [TOPOLOGY] [--rate R] [--requests N] [--prompt A B] [--answer A B] [--json FILE]

Starts the topology's mesh on this machine, loads it over HTTP from a process of its own (open loop, Poisson) and
simulates what was sent, twice. With the costs of the engines' own profile (`mesh profile`) and how much engines slow
each other down (`bench.fidelity.sharing`), all measured beforehand: that tells the profile and the simulator. And with
the costs that the engines have learnt from their steps in the end, which tells the simulator alone: machines are slower
on one day than on another. Overheads are measured beforehand (`bench.fidelity.overheads`); nothing is fitted to the
latencies that are compared. Run it alone: it says what others used of the machine.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec

from bench.fidelity import predicting
from bench.fidelity.agreement import Latency, agreement_table
from bench.fidelity.overheads import measure_overheads
from bench.fidelity.predicting import Profiles, Records
from bench.fidelity.sharing import measure_sharing
from bench.harness.arguments import add_json, errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console
from bench.live.contention import Watch
from bench.live.mesh import LiveMesh, live_mesh
from bench.load.results.outcome import Outcome
from engines.costs.profiles import EngineProfile
from mesh.show.progress import working
from mesh.topology.parse import load
from mesh.wire.status import DecodeCost, PrefillCost
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest

WARM_UP = 4  # requests: memory that was never written and code that never ran are slower


def draw(options: argparse.Namespace, count: int, random: Random) -> list[TraceRequest]:
    """Poisson arrivals; lengths are even between their bounds."""
    at_s, requests = 0.0, []
    for _ in range(count):
        num_input, num_output = (random.randint(*sorted(bounds)) for bounds in (options.prompt, options.answer))
        requests.append(TraceRequest(at_s, num_input, num_output))
        at_s += random.expovariate(options.rate)
    return requests


def learnt_profiles(mesh: LiveMesh, profiles: Profiles) -> Profiles:
    """With the costs that the engines predict with by now, in which it is that they slow each other down."""
    return {engine["id"]: _learnt(profiles[engine["id"]], *engine["services"]) for engine in mesh.status()["engines"]}


def _learnt(profile: EngineProfile, service: Mapping[str, object]) -> EngineProfile:
    prefill = msgspec.convert(service["prefill_cost"], PrefillCost)
    return replace(profile, prefill=prefill, decode=msgspec.convert(service["decode_cost"], DecodeCost))


def share_placed_alike(outcomes: Sequence[Outcome], records: Records) -> float:
    """By the same rule on the same engines."""
    pairs = [(one.headers, records[f"r{one.number}"]) for one in outcomes if one.is_finished]
    placed = [((has["rule"], has["prefill"], has["decode"]), record) for has, record in pairs]
    return sum(where == (one.rule, one.prefill_engine, one.decode_engine) for where, one in placed) / len(outcomes)


def run(options: argparse.Namespace) -> None:
    topology, random, console = load(options.topology), Random(options.seed), make_console()
    profiles = {engine.id: predicting.profile_of(engine, topology) for engine in topology.engines}
    overheads = measure_overheads(topology)
    with live_mesh(options.topology) as mesh:
        mesh.answers(draw(options, WARM_UP, random), random.getrandbits(32))
        sharing, requests = measure_sharing(mesh, random), draw(options, options.requests, random)
        with Watch(mesh.pids()) as watch, working("requests", len(requests)) as shown:
            outcomes = mesh.answers(requests, random.getrandbits(32), heard=shown.at)
        learnt = learnt_profiles(mesh, profiles)
    trace = [replace(one, at_s=outcome.sent_s) for one, outcome in zip(requests, outcomes, strict=True)]
    measured = {f"r{one.number}": Latency.of(one) for one in outcomes if one.is_finished}
    alone = Physics(kv_bytes_per_s=overheads.kv_bytes_per_s, step_s=overheads.step_s)
    shared = replace(alone, shared_decode=sharing.decode, shared_prefill=sharing.prefill)
    predictions = {
        "costs of the profile": predicting.simulate(topology, profiles, trace, shared),
        "costs as learnt": predicting.simulate(topology, learnt, trace, alone),
    }
    for costs, records in predictions.items():
        simulated = predicting.simulated_latencies(records, overheads.request_s)
        title = f"{costs}: {len(measured)} of {len(outcomes)} requests served, {len(simulated)} in the simulation"
        console.print(agreement_table(title, measured, simulated))
        console.print(f"the same engines and rule for {share_placed_alike(outcomes, records):.0%} of the requests")
    late_s = max(outcome.sent_s - outcome.due_s for outcome in outcomes)
    console.print(f"{overheads}\n{sharing}\nmachine: {watch.contention}; sent at most {1e3 * late_s:.0f} ms late")
    write_json(options.json, {"sent": requests, "outcomes": outcomes, "simulated": predictions})


def main() -> None:
    parser = script_parser("bench.fidelity", __doc__)
    parser.add_argument("topology", type=Path, nargs="?", default=Path("deploy/topology.toml"), metavar="TOPOLOGY")
    parser.add_argument("--rate", type=float, default=0.5, help="requests a second")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--prompt", type=int, nargs=2, default=(16, 256), metavar=("A", "B"), help="tokens")
    parser.add_argument("--answer", type=int, nargs=2, default=(8, 64), metavar=("A", "B"), help="tokens")
    parser.add_argument("--seed", type=int, default=0)
    add_json(parser)
    with errors_in_a_line():
        run(parser.parse_args())


if __name__ == "__main__":
    main()
