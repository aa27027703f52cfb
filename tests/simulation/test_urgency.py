"""What is more urgent is served first, however full the engines are when it comes."""

from pathlib import Path

import pytest

from engines.costs.profiles import EngineProfile
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost
from router.history.records import Outcome
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import simulation

SERVICE = "tiny"
NUM_OTHERS, NUM_PROMPT, NUM_ANSWER = 38, 301, 300
PREFILL, DECODE = PrefillCost(0.01, 0.00005), DecodeCost(0.006, 0.0005)
PROFILE = EngineProfile("small", PREFILL, DECODE, 2048, 16 * 2**20, "made up")  # room for 13 at their ends
TOPOLOGY = Topology(
    "urgency",
    Path("urgency.toml"),
    (ServiceSpec(SERVICE, "model", Slo(60.0, 5.0)),),
    (
        EngineSpec("prefill", Role.PREFILL, (SERVICE,), block_size=32),
        EngineSpec("decode", Role.MULTIPLEX, (SERVICE,), block_size=32),
    ),
    (GatewaySpec("gateway"),),
    policy=PolicySpec("tropical"),
)


@pytest.mark.parametrize("urgent_at_s", [0.15, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 4.0])
def test_what_is_more_urgent_waits_for_no_memory(urgent_at_s):
    """They come within 0.1 s, and are all done after 12 s. Beside twelve others an answer takes 5 s."""
    others = [TraceRequest(0.1 * n / NUM_OTHERS, NUM_PROMPT, NUM_ANSWER, priority=0) for n in range(NUM_OTHERS)]
    records = []
    sim = simulation(TOPOLOGY, profile=PROFILE)
    sim.run(SERVICE, [*others, TraceRequest(urgent_at_s, NUM_PROMPT, NUM_ANSWER, priority=100)], records.append)
    assert [record.outcome for record in records] == [Outcome.FINISHED] * (NUM_OTHERS + 1)
    [urgent] = [record for record in records if record.priority == 100]
    assert urgent.ttft_s < 0.2
    assert urgent.e2e_s < 5.3
