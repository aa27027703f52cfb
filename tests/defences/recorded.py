"""Builds a run that was drawn once and cut down to what breaks without a defence, as later draws are others."""

from pathlib import Path

from mesh.topology.schema import (
    EngineSpec,
    GatewaySpec,
    PlacementSpec,
    PolicySpec,
    Rescheduling,
    ServiceSpec,
    Slo,
    Topology,
    TransferSpec,
)
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from simulation.engines.physics import Physics
from simulation.faults.faults import Partition, Slow, Stall
from simulation.loads.trace_request import TraceRequest
from tests.tools.fault_runs.orders import Order
from tests.tools.fault_runs.play import play
from tests.tools.fault_runs.scenario import Scenario

FIRST, SECOND, THIRD = "multiplex-0", "multiplex-1", "multiplex-2"
ONE, OTHER = "gateway-0", "gateway-1"
REQUESTS = (  # arrival, tokens of the prompt and of the answer, priority, whether the prompt's begin is a common one
    (0.1098, 374, 20, 0, False),
    (0.3725, 386, 20, 0, False),
    (0.4335, 538, 10, 1, False),
    (0.5097, 392, 120, 0, True),
    (0.5168, 58, 40, 1, False),
    (0.5595, 31, 40, 0, False),
    (0.7393, 187, 3, 0, False),
    (0.8075, 361, 120, 0, False),
    (1.0222, 460, 1, 0, True),
    (1.1685, 576, 1, 0, False),
    (1.2000, 153, 10, 1, True),
    (1.3568, 81, 40, 1, True),
)
FAULTS = (
    Slow(THIRD, 20.0, 0.63966, 3.0),
    Partition((THIRD,), (ONE, OTHER), 0.26563, 0.9),
    Partition((OTHER,), (ONE, FIRST), 2.15083, 3.0),
    Partition((THIRD, FIRST), (ONE,), 0.85379, 0.9),
    Partition((SECOND, THIRD), (FIRST, THIRD), 1.85485, 0.9),
    Stall(THIRD, 0.30462, 4.0),
)


def a_move_after_the_end() -> None:
    """A client leaves while its engine cannot be reached. Then its request moves to an engine that stands still, and
    could stay there.
    """
    failure = play(_scenario()).failure
    assert failure is None, failure


def _scenario() -> Scenario:
    engines = tuple(
        EngineSpec(name, Role.MULTIPLEX, ("chat",), max_running=16, chunk_tokens=512) for name in (FIRST, SECOND, THIRD)
    )
    gateways = tuple(GatewaySpec(name, max_requests=most, max_waiting=64) for name, most in ((ONE, 8), (OTHER, 64)))
    topology = Topology(
        "faults",
        Path("faults.toml"),
        (ServiceSpec("chat", "model", Slo(1.0, 0.3)),),
        engines,
        gateways,
        policy=PolicySpec("round_robin"),
        transfer=TransferSpec(deadline_s=2.0),
        rescheduling=Rescheduling(give_below=256.0, take_above=512.0, interval_s=0.1, rest_s=0.2),
        placement=PlacementSpec(interval_s=0.5, shortest_s=0.3, longest_s=1.0, improve_s=0.1, load_s=1.0),
        timing=Timing(heartbeat_s=0.2, lease_s=1.0, reply_s=1.0),
    )
    trace = tuple(
        TraceRequest(at_s, num_input, num_output, blocks=(1,) if is_common else (), service="chat", priority=priority)
        for at_s, num_input, num_output, priority, is_common in REQUESTS
    )
    orders = (Order(2.72058, "leave", "", pick=0.12278),)
    physics = Physics(kv_bytes_per_s=2e7, noise=0.1, draft_acceptance=1.0)
    return Scenario(21386, topology, 54, trace, FAULTS, orders, physics)
