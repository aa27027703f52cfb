"""What the simulator says of requests that a live mesh of this machine serves, from what was measured beforehand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.live.agreement import Latency
from bench.live.http_load import Answer
from bench.live.overheads import Overheads
from bench.live.serving import PROBE_ANSWER, PROBE_PROMPT
from bench.live.sharing import Sharing
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.profiles import EngineProfile, load_profile
from engines.models.cache import Cache
from engines.profiling.store import ProfileStore
from engines.torch_engine.backend import key_of
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, Topology
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule

Profiles = Mapping[str, EngineProfile]  # by engine
Records = Mapping[str, Record]  # by request


def profile_of(engine: EngineSpec, topology: Topology) -> EngineProfile:
    """What the engine predicts with, or waits for. Raise `UserError` if it has not been measured."""
    if engine.backend == "simulated" and engine.profile is not None:
        return load_profile(engine.profile)
    if engine.backend != "torch" or len(engine.services) > 1:
        raise UserError(f'engines.{engine.id}: only backend = "torch" with one service an engine can be compared')
    file = ProfileStore.of(Cache.of_user()).load(key_of(engine, topology.service(engine.services[0])))
    if file is None:
        raise UserError(f"engines.{engine.id}: no profile is kept; measure it with: mesh profile {topology.path}")
    return replace(file.profile(), kv_memory_bytes=engine.kv_memory_bytes)


def physics_of(overheads: Overheads, sharing: Sharing) -> Physics:
    return Physics(
        kv_bytes_per_s=overheads.kv_bytes_per_s,
        step_s=overheads.step_s,
        shared_decode=sharing.decode,
        shared_prefill=sharing.prefill,
    )


def simulate(
    topology: Topology, profiles: Profiles, trace: Sequence[TraceRequest], physics: Physics
) -> dict[str, Record]:
    """By request: ``r0``, ``r1``, ... in the trace's order. Promises are the trace's, else the service's."""
    records: dict[str, Record] = {}
    simulation = Simulation(topology, profiles, seed=0, physics=physics, slo=SloRule())
    simulation.run(topology.services[0].name, trace, lambda record: records.__setitem__(record.id, record))
    return records


def simulated_latencies(records: Records, overheads: Overheads) -> dict[str, Latency]:
    """Latencies of the requests that were served, as a client would see them."""
    request_s = overheads.request_s
    return {
        name: Latency(record.ttft_s + request_s, record.tpot_s, record.e2e_s + request_s)
        for name, record in records.items()
        if record.outcome is Outcome.FINISHED and record.ttft_s is not None and record.e2e_s is not None
    }


def probe_ratios(probes: Sequence[Answer], profiles: Profiles, overheads: Overheads) -> tuple[float, float]:
    """The fastest probe over what the profile says of an idle engine: time to the first token, and later ones."""
    first, later = [], []
    for probe in probes:
        prefill, decode = profiles[probe.headers["prefill"]].prefill, profiles[probe.headers["decode"]].decode
        first_s = prefill_s(prefill, PROBE_PROMPT) + overheads.request_s + overheads.step_s
        later_s = decode_step_s(decode, 1, PROBE_PROMPT + PROBE_ANSWER // 2) + overheads.step_s
        first.append((probe.first_s - probe.sent_s) / first_s)
        later.append((probe.last_s - probe.first_s) / (PROBE_ANSWER - 1) / later_s)
    return min(first), min(later)
