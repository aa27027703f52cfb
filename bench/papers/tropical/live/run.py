"""Meshes on which policies take turns; what becomes of requests there, and what the simulator says of the same ones."""

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from statistics import fmean

from bench.fidelity.predicting import Profiles, Records, physics_of, profile_of, simulate, simulated_latencies
from bench.live.agreement import Latency
from bench.live.contention import Watch
from bench.live.http_load import Answer
from bench.live.mesh import LiveMesh, live_mesh, measure_profile
from bench.live.overheads import Overheads, measure_overheads
from bench.live.serving import OK, latency_of
from bench.live.sharing import measure_sharing
from bench.papers.live import sendings_of, warm_up
from bench.papers.tropical.live.setting import FLEETS, Fleet, Turn
from mesh.errors import UserError
from mesh.topology.schema import PolicySpec, Topology
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest

Route = tuple[str | None, str | None, str | None]  # rule, prefill engine, decode engine


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of requests, by their place in the trace: those that were served have latencies."""

    latencies: Mapping[int, Latency]
    routes: Mapping[int, Route]


@dataclass(frozen=True, slots=True)
class Run:
    """``requests`` arrive when they were really sent, ``late_s`` too late at most. ``others`` used so many cores."""

    policy: str
    rate: float
    requests: Sequence[TraceRequest]
    measured: Seen
    simulated: Seen
    others: float
    late_s: float


@dataclass(frozen=True, slots=True)
class Model:
    """All that the simulator is given."""

    topology: Topology
    profiles: Profiles
    physics: Physics
    overheads: Overheads

    def predict(self, policy: str, trace: Sequence[TraceRequest]) -> Seen:
        records = simulate(replace(self.topology, policy=PolicySpec(policy)), self.profiles, trace, self.physics)
        latencies = simulated_latencies(records, self.overheads)
        return Seen({_number(name): latency for name, latency in latencies.items()}, _simulated_routes(records))


@dataclass(frozen=True, slots=True)
class Stage:
    """Meshes that are up and warm, side by side: one at a time serves."""

    meshes: Mapping[Fleet, LiveMesh]
    models: Mapping[Fleet, Model]
    pids: Mapping[Fleet, Sequence[int]]


@contextmanager
def make_stage(topologies: Mapping[Fleet, Topology], random: Random) -> Iterator[Stage]:
    """Measure overheads and sharing, one after the other, and profiles that are not known; start the meshes.

    Raise `UserError` if anything cannot be measured or started.
    """
    profiles = {fleet: _profiles_of(topology) for fleet, topology in topologies.items()}
    first = next(iter(topologies))
    say("measuring HTTP and what surrounds computation")
    overheads = measure_overheads(topologies[first])
    with ExitStack() as stack:
        say(f"starting {len(topologies)} meshes of two engines")
        meshes = {fleet: stack.enter_context(live_mesh(one.path)) for fleet, one in topologies.items()}
        for mesh in meshes.values():
            warm_up(mesh)
        say("measuring how much two engines slow each other")
        physics = physics_of(overheads, measure_sharing(meshes[first], random))
        models = {fleet: Model(one, profiles[fleet], physics, overheads) for fleet, one in topologies.items()}
        yield Stage(meshes, models, {fleet: mesh.pids() for fleet, mesh in meshes.items()})


def _profiles_of(topology: Topology) -> Profiles:
    """Return what engines predict with. What was never measured is measured now."""
    try:
        return {engine.id: profile_of(engine, topology) for engine in topology.engines}
    except UserError:
        say(f"measuring what engines cost: {topology.path.stem}")
        measure_profile(topology.path)
        return {engine.id: profile_of(engine, topology) for engine in topology.engines}


def say(words: str) -> None:
    sys.stderr.write(f"{words}\n")


# --- one turn ---------------------------------------------------------------------------------------------------------


def serve_and_predict(on: Stage, turn: Turn, on_answer: Callable[[], None]) -> Run:
    """Let one policy serve a trace. Raise `UserError` if the mesh does not take the policy."""
    fleet, trace = FLEETS[turn.policy], turn.trace
    on.meshes[fleet].use(PolicySpec(turn.policy))
    began_s, client_began_s = time.perf_counter(), _children_s()
    with Watch(on.pids[fleet]) as watch:
        answers = on.meshes[fleet].answers(sendings_of(trace, Random(turn.seed)), on_answer)
    client = (_children_s() - client_began_s) / (time.perf_counter() - began_s)
    sent_s = list(accumulate((answer.sent_s for answer in answers), max))
    sent = [replace(request, at_s=at_s) for request, at_s in zip(trace, sent_s, strict=True)]
    return Run(
        turn.policy,
        turn.rate,
        sent,
        _measured(sent, answers),
        on.models[fleet].predict(turn.policy, sent),
        max(0.0, watch.contention.others - client),
        max(answer.sent_s - request.at_s for answer, request in zip(answers, trace, strict=True)),
    )


def _children_s() -> float:
    """Return the CPU seconds of child processes that have ended, which are clients."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _measured(trace: Sequence[TraceRequest], answers: Sequence[Answer]) -> Seen:
    served = [answer for answer in answers if answer.status == OK]
    return Seen(
        {answer.number: latency_of(answer, trace[answer.number].num_output) for answer in served},
        {a.number: (a.headers["rule"], a.headers["prefill"], a.headers["decode"]) for a in served},
    )


def _simulated_routes(records: Records) -> dict[int, Route]:
    """Return those of requests that were not refused."""
    return {
        _number(name): (record.rule, record.prefill_engine, record.decode_engine)
        for name, record in records.items()
        if record.decode_engine is not None
    }


def _number(name: str) -> int:
    return int(name.removeprefix("r"))


def attained(outcomes: Iterable[tuple[Sequence[TraceRequest], Seen]]) -> float:
    """Return the part of the requests of all traces, refused ones included, to which both SLOs were kept."""
    return fmean(
        _is_kept(request, seen.latencies.get(number))
        for trace, seen in outcomes
        for number, request in enumerate(trace)
    )


def _is_kept(request: TraceRequest, latency: Latency | None) -> bool:
    assert request.slo_ttft_s is not None
    assert request.slo_tpot_s is not None
    return (
        latency is not None
        and latency.ttft_s <= request.slo_ttft_s
        and (latency.tpot_s is None or latency.tpot_s <= request.slo_tpot_s)
    )
