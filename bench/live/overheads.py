"""What surrounds computation, measured: HTTP and the gateway, an engine's process between steps, copies of KV blocks.

A mesh of the same shape whose engines wait fixed times instead of computing serves a few requests one after the other.
What they take longer than the simulator says is what the simulator leaves out.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.live.http_load import Answer, Sending
from bench.live.mesh import live_mesh
from bench.live.ports import free_port
from engines.costs.profiles import load_profile
from mesh.topology.schema import Topology
from router.history.records import Record
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule

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
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "topology.toml"
        path.write_text(_topology(topology))
        profile = load_profile(PROFILE)
        step_and_pause_s = profile.prefill.fixed_s + NEW_TOKENS * profile.decode.fixed_s + PAUSE_S
        trace = [TraceRequest(number * step_and_pause_s, PROMPT_TOKENS, NEW_TOKENS) for number in range(REQUESTS)]
        with live_mesh(path) as mesh:
            answers = mesh.answers(
                [Sending(one.at_s, [number] * PROMPT_TOKENS, NEW_TOKENS) for number, one in enumerate(trace)]
            )
            records = _simulate(mesh.topology, trace)
    return _compare(answers[WARM_UP:], records[WARM_UP:])


def _compare(answers: Sequence[Answer], records: Sequence[Record]) -> Overheads:
    to_first, to_last = [], []
    for answer, record in zip(answers, records, strict=True):
        assert record.ttft_s is not None
        assert record.e2e_s is not None
        to_first.append(answer.first_s - answer.sent_s - record.ttft_s)
        to_last.append((answer.last_s - answer.first_s) - (record.e2e_s - record.ttft_s))
    step_s = max(0.0, statistics.median(to_last) / (NEW_TOKENS - 1))
    return Overheads(max(0.0, statistics.median(to_first) - step_s), step_s, copy_bytes_per_s())


def copy_bytes_per_s() -> float:
    """Of one thread that copies memory which it has written before, the fastest of a few."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8)
    times = []
    for _ in range(COPIES):
        started_at = time.perf_counter()
        target[:] = source
        times.append(time.perf_counter() - started_at)
    return COPY_BYTES / min(times)


def _simulate(topology: Topology, trace: Sequence[TraceRequest]) -> list[Record]:
    records: list[Record] = []
    profiles = {engine.id: load_profile(PROFILE) for engine in topology.engines}
    simulation = Simulation(topology, profiles, seed=0, physics=Physics(), slo=SloRule())
    simulation.run(topology.services[0].name, trace, records.append)
    return records


def _topology(topology: Topology) -> str:
    """The same engines and policy, promises that nothing breaks."""
    service = topology.services[0]
    lines = [f"[services.{json.dumps(service.name)}]", f"model = {json.dumps(service.model)}"]
    lines += ["ttft_ms = 60000", "tpot_ms = 60000", f"[policy]\nname = {json.dumps(topology.policy.name)}"]
    lines += [f"[gateways.gateway]\nport = {free_port()}"]
    for engine in topology.engines:
        lines += [f"[engines.{json.dumps(engine.id)}]", f'role = "{engine.role}"', 'backend = "simulated"']
        lines += [f"profile = {json.dumps(PROFILE)}"]
    return "\n".join(lines) + "\n"
