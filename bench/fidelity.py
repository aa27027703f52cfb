"""The simulator against the mesh itself: the same requests at the same times, served here and simulated.

    python -m bench.fidelity [TOPOLOGY] [--rate R] [--requests N] [--prompt A:B] [--answer A:B] [--out DIR]

Starts the topology's mesh on this machine, loads it over HTTP from a process of its own (open loop, Poisson) and
simulates what was sent. Costs are those of the engines' own profile (`mesh profile`), overheads and how much engines
slow each other down are measured beforehand (`bench.overheads`, `bench.sharing`); nothing is fitted to the latencies
that are compared. Run it alone: it says what others used of the machine, and how far idle engines are off the profile.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.agreement import Latency, agreement_table, agreements
from bench.http_load import Answer
from bench.live_mesh import live_mesh
from bench.overheads import Overheads, measure_overheads
from bench.serving import OK, PROBE_ANSWER, PROBE_PROMPT, TOO_MANY, Served, Workload, serve
from bench.simulation.cluster import Simulation
from bench.simulation.physics import Physics
from bench.simulation.trace_request import TraceRequest
from bench.simulation.workload import SloRule
from engines.costs import decode_step_s, prefill_s
from engines.models.cache import Cache
from engines.profile_store import ProfileStore
from engines.profiles import EngineProfile, load_profile
from engines.torch_engine.backend import key_of
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.schema import EngineSpec, Topology
from router.records import Outcome, Record

Profiles = Mapping[str, EngineProfile]  # by engine
Records = Mapping[str, Record]  # by request


def profile_of(engine: EngineSpec, topology: Topology) -> EngineProfile:
    """What the engine predicts with, or waits for. Raise `UserError` if it has not been measured."""
    if engine.backend == "simulated" and engine.profile is not None:
        return load_profile(engine.profile)
    if engine.backend != "torch" or len(engine.services) > 1:
        raise UserError(f'engines.{engine.id}: fidelity needs backend = "torch" and one service an engine')
    file = ProfileStore.of(Cache.of_user()).load(key_of(engine, topology.service(engine.services[0])))
    if file is None:
        raise UserError(f"engines.{engine.id}: no profile is kept; measure it with: mesh profile {topology.path}")
    return replace(file.profile(), kv_memory_bytes=engine.kv_memory_bytes)


def simulate(topology: Topology, profiles: Profiles, served: Served, overheads: Overheads) -> dict[str, Record]:
    """What was sent, when it was sent."""
    physics = Physics(
        kv_bytes_per_s=overheads.kv_bytes_per_s,
        step_s=overheads.step_s,
        shared_decode=served.sharing.decode,
        shared_prefill=served.sharing.prefill,
    )
    trace = [
        TraceRequest(answer.sent_s, len(sending.prompt), sending.max_tokens)
        for sending, answer in zip(served.sendings, served.answers, strict=True)
    ]
    records: dict[str, Record] = {}
    simulation = Simulation(topology, profiles, seed=0, physics=physics, slo=SloRule())
    simulation.run(topology.services[0].name, trace, lambda record: records.__setitem__(record.id, record))
    return records


def simulated_latencies(records: Records, overheads: Overheads) -> dict[str, Latency]:
    request_s = overheads.request_s
    return {
        name: Latency(record.ttft_s + request_s, record.tpot_s, record.e2e_s + request_s)
        for name, record in records.items()
        if record.outcome is Outcome.FINISHED and record.ttft_s is not None and record.e2e_s is not None
    }


# --- what is shown ----------------------------------------------------------------------------------------------------


def report(console: Console, served: Served, records: Records, overheads: Overheads, profiles: Profiles) -> None:
    measured, simulated = served.latencies(), simulated_latencies(records, overheads)
    title = f"{len(measured)} of {len(served.answers)} requests served, {len(simulated)} in the simulation"
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
        prefill, decode = _probe_ratios(probes, profiles, overheads)
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


def _probe_ratios(probes: Sequence[Answer], profiles: Profiles, overheads: Overheads) -> tuple[float, float]:
    """The fastest probe over what the profile says of an idle engine: time to the first token, and later ones."""
    first, later = [], []
    for probe in probes:
        prefill, decode = profiles[probe.headers["prefill"]].prefill, profiles[probe.headers["decode"]].decode
        first_s = prefill_s(prefill, PROBE_PROMPT) + overheads.request_s + overheads.step_s
        later_s = decode_step_s(decode, 1, PROBE_PROMPT + PROBE_ANSWER // 2) + overheads.step_s
        first.append((probe.first_s - probe.sent_s) / first_s)
        later.append((probe.last_s - probe.first_s) / (PROBE_ANSWER - 1) / later_s)
    return min(first), min(later)


def write(folder: Path, topology: Topology, served: Served, records: Records, overheads: Overheads) -> None:
    """Everything that was measured and simulated, and a picture of it."""
    from bench.agreement_plot import plot_agreement

    folder.mkdir(parents=True, exist_ok=True)
    everything = {"served": served, "simulated": records, "overheads": overheads}
    (folder / "fidelity.json").write_bytes(msgspec.json.encode(everything))
    title = f"{topology.name}: measured here and simulated"
    plot_agreement(folder / "fidelity.png", title, served.latencies(), simulated_latencies(records, overheads))
    print(f"wrote {folder / 'fidelity.json'} and {folder / 'fidelity.png'}")


# --- the command ------------------------------------------------------------------------------------------------------


def _bounds(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    if not low.isdecimal() or not high.isdecimal() or not 1 <= int(low) <= int(high):
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; write bounds like 16:256")
    return int(low), int(high)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.fidelity", description=__doc__.splitlines()[0])
    parser.add_argument("topology", type=Path, nargs="?", default=Path("deploy/topology.toml"), metavar="TOPOLOGY")
    parser.add_argument("--rate", type=float, default=0.5, help="requests a second")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--prompt", type=_bounds, default=(16, 256), metavar="A:B", help="tokens")
    parser.add_argument("--answer", type=_bounds, default=(8, 64), metavar="A:B", help="tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="DIR", help="write what was measured and draw a picture there")
    return parser.parse_args()


@contextmanager
def _progress() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield progress


def run(arguments: argparse.Namespace) -> None:
    topology = load(arguments.topology)
    workload = Workload(arguments.requests, arguments.rate, arguments.prompt, arguments.answer)
    with _progress() as progress:
        task = progress.add_task("measuring overheads", total=workload.num_requests)
        overheads = measure_overheads(topology)
        progress.update(task, description="starting, warming up, measuring the idle mesh, then serving")
        with live_mesh(arguments.topology) as mesh:
            served = serve(mesh, workload, Random(arguments.seed), lambda: progress.advance(task))
    profiles = {engine.id: profile_of(engine, topology) for engine in topology.engines}
    records = simulate(topology, profiles, served, overheads)
    console = Console(width=None if sys.stdout.isatty() else 120)
    report(console, served, records, overheads, profiles)
    if arguments.out is not None:
        write(arguments.out, topology, served, records, overheads)


def main() -> None:
    try:
        run(_arguments())
    except UserError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
