"""What the simulator says of requests that a live mesh of this machine serves, from what was measured beforehand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.fidelity.agreement import Latency
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


def simulate(
    topology: Topology, profiles: Profiles, trace: Sequence[TraceRequest], physics: Physics
) -> dict[str, Record]:
    """By request: ``r0``, ``r1``, ... in the trace's order. Promises are the trace's, else the service's."""
    records: dict[str, Record] = {}
    simulation = Simulation(topology, profiles, seed=0, physics=physics, slo=SloRule())
    simulation.run(topology.services[0].name, trace, lambda record: records.__setitem__(record.id, record))
    return records


def simulated_latencies(records: Records, request_s: float) -> dict[str, Latency]:
    """Latencies of the requests that were served, as a client would see them: later by ``request_s``."""
    return {
        name: Latency(record.ttft_s + request_s, record.tpot_s, record.e2e_s + request_s)
        for name, record in records.items()
        if record.outcome is Outcome.FINISHED and record.ttft_s is not None and record.e2e_s is not None
    }
