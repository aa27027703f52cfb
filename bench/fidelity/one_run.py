"""One topology, once: its engines are measured, it serves requests, and the same requests are simulated."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from bench.fidelity.agreement import Latencies, Latency
from bench.fidelity.overheads import Overheads, Sharing, measure_overheads, measure_sharing, simulate
from bench.harness.machine import Conditions, watched
from bench.live.mesh import START_S, LiveMesh, live_mesh, mesh_command
from bench.live.reference import Reference
from bench.load.results.outcome import Outcome
from engines.costs.profiles import EngineProfile
from mesh.errors import UserError
from mesh.show.progress import working
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.status import DecodeCost, PrefillCost
from router.history.records import Record
from simulation.command.profiles import profiles_of
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import Profile, SharedProfile
from simulation.loads.trace_request import TraceRequest

WARM_UP = 4  # requests of each service: memory that was never written and code that never ran are slower
PROFILE, LEARNT = "costs of the profile", "costs as learnt"

Profiles = Mapping[str, Profile]  # by engine
Records = Mapping[str, Record]  # by request


@dataclass(frozen=True, slots=True)
class Load:
    """Poisson arrivals of ``number`` requests, ``rate`` a second; lengths are even between their bounds, services in
    equal shares.
    """

    number: int
    rate: float
    prompt: tuple[int, int]
    answer: tuple[int, int]

    def draw(self, topology: Topology, random: Random) -> list[TraceRequest]:
        at_s, requests = 0.0, []
        for _ in range(self.number):
            service = random.choice(topology.services).name
            num_input, num_output = (random.randint(*sorted(bounds)) for bounds in (self.prompt, self.answer))
            requests.append(TraceRequest(at_s, num_input, num_output, service=service))
            at_s += random.expovariate(self.rate)
        return requests


@dataclass(frozen=True, slots=True)
class Found:
    """``simulated`` and ``records`` by kind of costs. ``slowness``: times as long as when the engines were measured,
    the same work took while requests were served.
    """

    topology: Path
    outcomes: Sequence[Outcome]
    sent: Sequence[TraceRequest]
    records: Mapping[str, Records]
    simulated: Mapping[str, Latencies]
    overheads: Overheads
    sharing: Sharing
    conditions: Conditions
    slowness: float

    @property
    def measured(self) -> dict[str, Latency]:
        return {f"r{one.number}": Latency.of(one) for one in self.outcomes if one.is_finished}

    def measured_at_the_speed_of(self, costs: str) -> dict[str, Latency]:
        """Return what was measured, less what the machine was slower by than when these costs were measured."""
        if costs == LEARNT:
            return self.measured
        return {name: one.times(1 / self.slowness) for name, one in self.measured.items()}

    def share_placed_alike(self, costs: str) -> float:
        """Return the share of requests that got the same engines by the same rule."""
        pairs = [(one.headers, self.records[costs][f"r{one.number}"]) for one in self.outcomes if one.is_finished]
        placed = [((has["rule"], has["prefill"], has["decode"]), record) for has, record in pairs]
        alike = sum(where == (one.rule, one.prefill_engine, one.decode_engine) for where, one in placed)
        return alike / len(self.outcomes)

    @property
    def sent_late_s(self) -> float:
        """Return by how much the latest one was."""
        return max(outcome.sent_s - outcome.due_s for outcome in self.outcomes)


def run(path: Path, load_: Load, reference: Reference, seed: int) -> Found:
    """Takes some minutes. Raise `UserError` if the mesh does not start or its engines cannot be measured."""
    topology, random = load(path), Random(seed)
    began_at = time.monotonic()
    profiles = _measured(topology)
    normal_s = reference.work_s(began_at, time.monotonic())
    overheads = measure_overheads(topology)
    with live_mesh(path) as mesh:
        mesh.answers(replace(load_, number=WARM_UP * len(topology.services)).draw(topology, random), seed=-1)
        sharing, requests = measure_sharing(mesh, random), load_.draw(topology, random)
        began_at = time.monotonic()
        with watched(mesh.pids()) as conditions, working(f"{path.name}: requests", len(requests)) as shown:
            outcomes = mesh.answers(requests, random.getrandbits(32), heard=shown.at)
        slowness = reference.work_s(began_at, time.monotonic()) / normal_s
        learnt = learnt_profiles(mesh, profiles)
    trace = [replace(one, at_s=outcome.sent_s) for one, outcome in zip(requests, outcomes, strict=True)]
    alone = Physics(kv_bytes_per_s=overheads.kv_bytes_per_s, step_s=overheads.step_s)
    shared = replace(alone, shared_decode=sharing.decode, shared_prefill=sharing.prefill)
    records = {PROFILE: simulate(topology, profiles, trace, shared), LEARNT: simulate(topology, learnt, trace, alone)}
    simulated = {costs: _latencies(each, overheads.request_s) for costs, each in records.items()}
    return Found(path, outcomes, trace, records, simulated, overheads, sharing, conditions, slowness)


def _latencies(records: Records, request_s: float) -> dict[str, Latency]:
    """Latencies of the requests that were served."""
    found = ((name, Latency.simulated(record, request_s)) for name, record in records.items())
    return {name: latency for name, latency in found if latency is not None}


def _measured(topology: Topology) -> Profiles:
    """Measure the engines with the command that users type. Those of vLLM measured themselves at their first start,
    and those with modelled times have a profile.
    """
    if any(engine.backend == "torch" for engine in topology.engines):
        print(f"{topology.path}: measuring its engines", file=sys.stderr)
        told = mesh_command(os.environ, START_S, "profile", str(topology.path))
        if told.returncode:
            raise UserError(f"{topology.path}: not measured: {(told.stdout + told.stderr).strip()}")
    return profiles_of(topology, {})


def learnt_profiles(mesh: LiveMesh, profiles: Profiles) -> Profiles:
    """With the costs that the engines predict with by now, in which it is that they slow each other down."""
    return {engine["id"]: _learnt(profiles[engine["id"]], engine["services"]) for engine in mesh.status()["engines"]}


def _learnt(profile: Profile, services: Sequence[Mapping[str, Any]]) -> Profile:
    if isinstance(profile, SharedProfile):
        return replace(profile, services={one["name"]: _with(profile.services[one["name"]], one) for one in services})
    return _with(profile, services[0])


def _with(profile: EngineProfile, service: Mapping[str, Any]) -> EngineProfile:
    prefill = msgspec.convert(service["prefill_cost"], PrefillCost)
    return replace(profile, prefill=prefill, decode=msgspec.convert(service["decode_cost"], DecodeCost))
