"""What surrounds computation, measured: HTTP and the gateway, an engine's process between steps, copies of KV blocks.

A mesh of the same shape whose engines wait fixed times instead of computing serves a few requests one after the other.
What they take longer than the simulator says is what the simulator leaves out.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from bench.fidelity.agreement import Latency
from bench.harness.machine import timed
from bench.live.mesh import mesh_of
from bench.live.ports import free_port
from bench.load.results.outcome import Outcome
from bench.simulated import make_simulation, serve
from engines.costs.profiles import load_profile
from mesh.topology.schema import Topology
from router.history.records import Record
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import Profile
from simulation.loads.trace_request import TraceRequest

REQUESTS, PROMPT_TOKENS, NEW_TOKENS = 12, 32, 24
WARM_UP = 3  # requests that are not counted
PAUSE_S = 0.25
PROFILE = str(Path(__file__).with_name("flat.toml"))
COPY_BYTES, COPIES = 64 * 2**20, 5


@dataclass(frozen=True, slots=True)
class Overheads:
    """``request_s``: once a request, before its first token; ``step_s``: once a step of an engine."""

    request_s: float
    step_s: float
    kv_bytes_per_s: float


def measure_overheads(topology: Topology) -> Overheads:
    """Takes ten seconds or so. The machine should have nothing else to do."""
    profile = load_profile(PROFILE)
    apart_s = profile.prefill.fixed_s + NEW_TOKENS * profile.decode.fixed_s + PAUSE_S
    trace = [TraceRequest(number * apart_s, PROMPT_TOKENS, NEW_TOKENS) for number in range(REQUESTS)]
    with mesh_of(tomli_w.dumps(_tables(topology))) as mesh:
        answers = mesh.answers(trace, seed=0)
    profiles = {engine.id: profile for engine in mesh.topology.engines}
    records = simulate(mesh.topology, profiles, trace, Physics())
    return _compare((answer, records[f"r{answer.number}"]) for answer in answers[WARM_UP:])


def simulate(
    topology: Topology, profiles: Mapping[str, Profile], trace: Sequence[TraceRequest], physics: Physics
) -> dict[str, Record]:
    """By request: ``r0``, ``r1``, ... in the trace's order. Promises are the trace's, else the service's."""
    simulation = make_simulation(topology, profiles, 0, physics=physics)
    return {record.id: record for record in serve(simulation, topology.services[0].name, trace)}


def _compare(pairs: Iterable[tuple[Outcome, Record]]) -> Overheads:
    to_first, to_last = [], []
    for outcome, record in pairs:
        assert record.ttft_s is not None
        assert record.e2e_s is not None
        seen = Latency.of(outcome)
        to_first.append(seen.ttft_s - record.ttft_s)
        to_last.append((seen.e2e_s - seen.ttft_s) - (record.e2e_s - record.ttft_s))
    step_s = max(0.0, statistics.median(to_last) / (NEW_TOKENS - 1))
    return Overheads(max(0.0, statistics.median(to_first) - step_s), step_s, copy_bytes_per_s())


def copy_bytes_per_s() -> float:
    """Of one thread that copies memory which it has written before, the fastest of a few."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8)
    return COPY_BYTES / min(timed(partial(np.copyto, target, source)) for _ in range(COPIES))


def _tables(topology: Topology) -> dict[str, Any]:
    """The same engines and policy, promises that nothing breaks."""
    service, waiting = topology.services[0], {"backend": "simulated", "profile": PROFILE}
    return {
        "services": {service.name: {"model": service.model, "ttft_ms": 60000, "tpot_ms": 60000}},
        "policy": {"name": topology.policy.name},
        "gateways": {"gateway": {"port": free_port()}},
        "engines": {engine.id: {"role": str(engine.role), **waiting} for engine in topology.engines},
    }
