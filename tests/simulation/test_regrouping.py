"""Engines of one device each become one of two, and back, and no request is lost."""

from collections.abc import Callable
from dataclasses import replace

from mesh.addresses import supervisor_id
from mesh.topology.schema import PlacementSpec, Topology
from mesh.wire.control import Role, SetRunning
from router.history.records import Outcome, Record
from router.placement.change.replacement import Proposal, Verdict
from router.placement.search.question import Answer, Question
from router.placement.search.score import Score
from router.placement.search.span import regrouped
from simulation.faults.faults import FailLoad, Fault, Kill
from simulation.loads.trace_request import TraceRequest
from simulation.placement.daemon import SearchResult
from tests.simulation.small import SERVICE, Profile, assert_all_ended_once, simulation, topology

NARROW = ("n-0", "n-1")
TRACE = [TraceRequest(0.25 * number, 300, 60) for number in range(160)]


def spanned() -> Topology:
    """Two pairs of engines, of which the first may become one."""
    small = topology(dict.fromkeys((*NARROW, "m-0", "m-1", "wide"), Role.MULTIPLEX))
    *others, wide = small.engines
    return replace(small, engines=(*others, replace(wide, spans=NARROW, is_standby=True)))


def serve(
    orders: dict[float, tuple[str, ...]], *faults: Fault, what: Topology | None = None
) -> tuple[list[set[str]], list[Record]]:
    """Which engines ran when another one came or went, and what became of the requests."""
    sim = simulation(what or spanned(), profile=Profile(num_devices=1), faults=faults)
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


def test_a_mesh_may_begin_with_the_one_engine():
    engines = [replace(spec, is_standby=spec.id in NARROW) for spec in spanned().engines]
    running, _ = serve({5.0: NARROW, 25.0: ("wide",)}, what=replace(spanned(), engines=tuple(engines)))
    assert running[0] == running[-1] == {"wide", "m-0", "m-1"}
    assert {*NARROW, "m-0", "m-1"} in running


def test_a_start_that_fails_leads_back():
    running, _ = serve({5.0: ("wide",)}, FailLoad("wide", 1.0, 0.0, 60.0))
    assert running[0] == running[-1] == {*NARROW, "m-0", "m-1"}
    assert not any("wide" in engines for engines in running)


def test_an_engine_that_dies_while_it_leaves_gives_its_device_all_the_same():
    running, _ = serve({5.0: ("wide",)}, Kill("n-0", 5.05, 0.5), Kill("n-1", 4.0, 30.0))
    assert running[-1] == {"wide", "m-0", "m-1"}


def joins(question: Question) -> SearchResult:
    """Finds that devices are joined, if they may be."""
    present = plan = question.present
    for span in question.cluster.spans:
        if span.spanned[0].id in present.engines:
            plan = regrouped(present, span.spanned, (span.spanning.holding([SERVICE]),))
    verdict = Verdict.KEEP if plan == present else Verdict.REPLACE
    return SearchResult(Answer(Proposal(plan, verdict, Score({}), Score({}), 1), {}), 2.0)


def placed(search: Callable[[Question], SearchResult], *faults: Fault) -> tuple[set[str], list[str]]:
    """The engines in the end, and what the daemon said."""
    engines = [replace(spec, profile=f"a100-llama3-8b-tp{len(spec.spans) or 1}") for spec in spanned().engines]
    spec = PlacementSpec(interval_s=6.0, shortest_s=6.0, longest_s=12.0)
    what, notes = replace(spanned(), engines=tuple(engines), placement=spec), list[str]()
    sim = simulation(
        what,
        profile=Profile(num_devices=1),
        faults=faults,
        search=search,
        on_note=lambda _, note: notes.append(note.line),
    )
    records = list[Record]()
    sim.run(SERVICE, TRACE, records.append)
    assert_all_ended_once(sim, records, TRACE)
    assert {record.outcome for record in records} == {Outcome.FINISHED}
    return set(sim.engines), notes


def test_a_daemon_gives_devices_to_the_engine_that_its_plan_wants():
    engines, notes = placed(joins)
    assert engines == {"wide", "m-0", "m-1"}
    assert "plan 1: regrouping: wide takes the place of n-0 and n-1" in notes
    assert "plan 1 is carried out" in notes


def test_a_daemon_leaves_devices_alone_where_the_engine_did_not_start():
    engines, notes = placed(joins, FailLoad("wide", 1.0, 0.0, 60.0))
    assert engines == {*NARROW, "m-0", "m-1"}
    [given_up] = [line for line in notes if "given up" in line]
    assert given_up.startswith("plan 1 was given up: wide did not start: its services cannot be loaded")


def test_a_daemon_that_dies_while_devices_change_hands_is_followed_by_one_that_goes_on():
    engines, notes = placed(joins, Kill("placement", 12.0, 1.0))
    assert engines == {"wide", "m-0", "m-1"}
    assert sum("takes the place" in line for line in notes) == 1
