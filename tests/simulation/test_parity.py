"""A gateway's core makes the same of the same events, whether a process made it or the simulator did.

The stream was recorded from a gateway on real sockets (``python -m tests.simulation.record_gateway`` writes it anew):
requests, one of them handed over and one that migrates, an engine that is killed, another policy, a drain.
"""

from random import Random

from mesh.clock import SystemClock
from mesh.topology.schema import PolicySpec
from mesh.wire.frames import Sender
from router.gateway import Router
from router.history.summary import record_of
from router.history.tallies import Tallies
from router.history.timelines import TimelineReaders, Timelines
from router.policies.in_force import PolicyInForce
from simulation.engines.physics import Physics
from simulation.factory import Factory
from simulation.kernel import Kernel
from simulation.network import Network
from tests.simulation.gateway_events import read_events, replay
from tests.simulation.record_gateway import topology_in


def core_of_the_process(topology):
    tallies = Tallies()
    ended = lambda timeline, request: tallies.ended(record_of(timeline), request.service)  # noqa: E731
    timelines = Timelines(TimelineReaders(arrived=(tallies.arrived,), ended=(ended,)))
    return Router(
        topology, "gateway", None, SystemClock(), PolicyInForce(PolicySpec(), Random(0), 0.0), timelines, tallies
    )._core


def core_of_the_simulator(topology):
    kernel = Kernel()
    factory = Factory(
        topology,
        {},
        Physics(),
        Network(kernel, 0.0),
        kernel,
        coasts=False,
        observer=None,
        on_end=lambda record, request: None,
        timelines=Timelines,
    )
    return factory.gateway(topology.gateways[0], Sender("gateway", 1), kernel).core


def test_the_recorded_run_has_what_makes_it_hard():
    events = [(name, type(what.get("message", what.get("status"))).__name__) for name, what in read_events()]
    assert {("receive", "Moved"), ("receive", "SetPolicy"), ("hear", "SupervisorStatus")} <= set(events)
    assert {"submit", "drain", "expire"} <= {name for name, _ in events}


def test_the_process_and_the_simulator_make_the_same_of_the_same_events(tmp_path):
    topology = topology_in(tmp_path)
    live, simulated = replay(core_of_the_process(topology)), replay(core_of_the_simulator(topology))
    assert any("SetRoute" in effect for _, effects in live for effect in effects)
    for number, (here, there) in enumerate(zip(live, simulated, strict=True)):
        assert here == there, f"event {number}"
