"""What the simulator says of requests that a live mesh of this machine serves, from what was measured beforehand."""

from collections.abc import Mapping, Sequence

from bench.fidelity.agreement import Latency
from mesh.topology.schema import Topology
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import Profile
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule

Profiles = Mapping[str, Profile]  # by engine
Records = Mapping[str, Record]  # by request


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
