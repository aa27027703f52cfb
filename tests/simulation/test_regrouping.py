"""Engines of one device each become one of two, and back, and no request is lost."""

from dataclasses import replace

from mesh.addresses import supervisor_id
from mesh.topology.schema import Topology
from mesh.wire.control import Role, SetRunning
from router.history.records import Outcome, Record
from simulation.faults.faults import FailLoad, Fault, Kill
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import SERVICE, Profile, assert_all_ended_once, simulation, topology

NARROW = ("n-0", "n-1")
TRACE = [TraceRequest(0.25 * number, 300, 60) for number in range(160)]


def spanned() -> Topology:
    """Two pairs of engines, of which the first may become one."""
    small = topology(dict.fromkeys((*NARROW, "m-0", "m-1", "wide"), Role.MULTIPLEX))
    *others, wide = small.engines
    return replace(small, engines=(*others, replace(wide, spans=NARROW, is_standby=True)))


def serve(orders: dict[float, tuple[str, ...]], *faults: Fault) -> tuple[list[set[str]], list[Record]]:
    """Which engines ran when another one came or went, and what became of the requests."""
    sim = simulation(spanned(), profile=Profile(num_devices=1), faults=faults)
    for at_s, engines in orders.items():
        for name in engines:
            sim.kernel.at(at_s, sim.network.send, "mesh", supervisor_id("local"), SetRunning(name, True))
    running, records = [], list[Record]()

    def look() -> None:
        if not running or set(sim.engines) != running[-1]:
            running.append(set(sim.engines))
        sim.kernel.after(0.1, look)

    look()
    sim.run(SERVICE, TRACE, records.append)
    assert_all_ended_once(sim, records, TRACE)
    assert {record.outcome for record in records} == {Outcome.FINISHED}
    assert not any("wide" in engines and engines & set(NARROW) for engines in running), "both ways at once"
    return running, records


def test_two_engines_become_one_and_two_again_without_losing_a_request():
    running, records = serve({5.0: ("wide",), 25.0: NARROW})
    assert running[0] == running[-1] == {*NARROW, "m-0", "m-1"}
    assert {"wide", "m-0", "m-1"} in running
    assert {"wide", *NARROW} < {record.decode_engine for record in records}


def test_a_start_that_fails_leads_back():
    running, _ = serve({5.0: ("wide",)}, FailLoad("wide", 1.0, 0.0, 60.0))
    assert running[0] == running[-1] == {*NARROW, "m-0", "m-1"}
    assert not any("wide" in engines for engines in running)


def test_an_engine_that_dies_while_it_leaves_gives_its_device_all_the_same():
    running, _ = serve({5.0: ("wide",)}, Kill("n-0", 5.05, 0.5), Kill("n-1", 4.0, 30.0))
    assert running[-1] == {"wide", "m-0", "m-1"}
