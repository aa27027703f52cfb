"""Services that take turns on the engines that they share: each one that decodes there makes all tokens come later."""

from pathlib import Path
from random import Random

import pytest

from bench.simulated import attainment, make_simulation, serve
from engines.costs.named_profiles import load_profile
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from simulation.loads.trace_request import TraceRequest

PROFILE, SERVICES = "a100-llama2-70b-tp4", ("a", "b", "c", "d")  # a decode step takes 27 ms
ROLES = {"prefill": Role.PREFILL, "m0": Role.MULTIPLEX, "m1": Role.MULTIPLEX}
SLO = Slo(1.0, 0.06)


@pytest.mark.parametrize("policy", [PolicySpec("tropical"), PolicySpec("elastic", {"headroom": 1.0})], ids=str)
def test_engines_decode_no_more_services_than_promises_leave_time_for(policy):
    """Two, in turns."""
    random = Random(0)
    requests = [
        TraceRequest(0.25 * number, random.randint(64, 192), random.randint(64, 192), service=random.choice(SERVICES))
        for number in range(80)
    ]
    engines = [EngineSpec(id_, role, SERVICES, backend="simulated", profile=PROFILE) for id_, role in ROLES.items()]
    services = [ServiceSpec(name, PROFILE, SLO) for name in SERVICES]
    gateways = (GatewaySpec("gateway"),)
    topology = Topology("turns", Path(), tuple(services), tuple(engines), gateways, policy=policy)
    records = serve(make_simulation(topology, load_profile(PROFILE), 0, coasts=True), SERVICES[0], requests)
    assert attainment(records) >= 0.8
