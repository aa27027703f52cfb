"""Services that lost their last engine: when they are given another one, and which."""

from pathlib import Path

from mesh.topology.schema import EngineSpec, Topology
from mesh.wire.control import Role
from mesh.wire.frames import Sender
from router.placement.change.obstacles import Obstacles
from router.placement.change.restoring import SILENT_S, UnservedServices, restored
from router.placement.observe.roster import Roster
from router.placement.search.plan import Group, Plan
from tests.router.cluster import M0, M1, make_status

LEASE_S = 3.0


def after_the_loss_of(engine: str) -> Roster:
    """Two engines with a service each; one has died."""
    roster = Roster(LEASE_S)
    for name, service in ((M0, "a"), (M1, "b")):
        roster.hear(Sender(name, 1), make_status(name, services=(service,)), 0.0)
    roster.declare_dead(Sender(engine, 1))
    return roster


def test_a_service_is_given_an_engine_once_its_own_was_silent_for_long():
    services, roster = UnservedServices(), after_the_loss_of(M0)
    assert services.due(roster, 1, 100.0) == {}
    assert services.due(roster, 1, 100.0 + SILENT_S - 0.1) == {}
    assert services.due(roster, 1, 100.0 + SILENT_S) == {"a": []}


def test_an_engine_that_came_back_without_it_is_not_waited_for():
    services, roster = UnservedServices(), after_the_loss_of(M0)
    roster.hear(Sender(M0, 2), make_status(M0, services=()), 100.0)
    assert services.due(roster, 1, 100.0) == {"a": [M0]}


def test_it_is_asked_for_once_an_interval():
    services, roster = UnservedServices(), after_the_loss_of(M0)
    services.due(roster, 1, 0.0)
    assert services.due(roster, 1, 50.0) == {"a": []}
    assert services.due(roster, 1, 60.0) == {}
    assert services.due(roster, 2, 70.0) == {"a": []}


def test_a_service_that_was_served_meanwhile_waits_anew():
    services, roster = UnservedServices(), after_the_loss_of(M0)
    services.due(roster, 1, 0.0)
    roster.hear(Sender(M0, 2), make_status(M0, services=("a",)), 1.0)
    assert services.due(roster, 1, 1.0) == {}
    roster.declare_dead(Sender(M0, 2))
    assert services.due(roster, 1, SILENT_S) == {}, "it is not served since 10 s, not since 0 s"


def a_plan(**held: str) -> Plan:
    return Plan(
        tuple(Group(name, "local", number, 1, tuple(services)) for number, (name, services) in enumerate(held.items()))
    )


def a_topology(**own: str) -> Topology:
    engines = tuple(EngineSpec(name, Role.MULTIPLEX, tuple(services)) for name, services in own.items())
    return Topology("t", Path("t.toml"), (), engines, ())


def held(plan: Plan | None) -> dict[str, str]:
    assert plan is not None
    return {group.id: "".join(group.services) for group in plan.groups}


def test_it_goes_to_those_that_had_it_before_the_topologys_and_the_emptiest():
    plan, topology, free = a_plan(e0="ab", e1="b", e2="a"), a_topology(e0="c"), Obstacles({})
    assert held(restored(plan, {"c": ["e2"]}, topology, free)) == {"e0": "ab", "e1": "b", "e2": "ac"}
    assert held(restored(plan, {"c": []}, topology, free)) == {"e0": "abc", "e1": "b", "e2": "a"}
    assert held(restored(plan, {"c": []}, a_topology(), free)) == {"e0": "ab", "e1": "bc", "e2": "a"}


def test_one_place_that_was_given_counts_for_the_next():
    found = restored(a_plan(e0="a", e1="b"), {"c": [], "d": []}, a_topology(), Obstacles({}))
    assert held(found) == {"e0": "ac", "e1": "bd"}


def test_nothing_to_restore_is_no_plan():
    assert restored(a_plan(e0="a"), {}, a_topology(), Obstacles({})) is None
