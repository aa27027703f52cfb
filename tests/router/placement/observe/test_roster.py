"""Which engines live, what they said last, and which services somebody is to serve."""

from msgspec.structs import replace

from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.status import EngineStatus
from router.placement.observe.roster import Roster
from tests.router.cluster import M0, M1, make_status

LEASE_S = 3.0


def says(*services: str, seq: int = 1, state: ProcessState = ProcessState.READY) -> EngineStatus:
    return make_status(M0, seq, services=services, state=state)


def a_roster(*statuses: tuple[str, EngineStatus]) -> Roster:
    roster = Roster(LEASE_S)
    for engine, status in statuses:
        roster.hear(Sender(engine, 1), status, 0.0)
    return roster


def test_what_is_served_is_wanted_by_whoever_loses_it():
    roster = a_roster((M0, says("a")), (M1, says("b")))
    assert roster.unserved() == []
    roster.expire(LEASE_S + 0.1)
    assert roster.unserved() == ["a", "b"]
    assert roster.ready == {}
    assert len(list(roster.remembered)) == 2


def test_what_is_taken_from_an_engine_that_lives_on_is_not_wanted():
    roster = a_roster((M0, says("a", "b")), (M1, says("b")))
    roster.hear(Sender(M0, 1), says(seq=2), 1.0)
    assert roster.wanted == {"b"}, "the other engine has it still"
    assert roster.unserved() == []


def test_a_service_that_leaves_is_not_served():
    roster = a_roster((M0, says("a")))
    leaving = says("a", seq=2)
    leaving = replace(leaving, services=[replace(one, is_leaving=True) for one in leaving.services])
    roster.hear(Sender(M0, 1), leaving, 1.0)
    assert roster.wanted == set()


def test_what_an_engine_lost_by_being_started_again_is_wanted():
    roster = a_roster((M0, says("a", "b")))
    roster.hear(Sender(M0, 2), says("b"), 1.0)
    assert roster.unserved() == ["a"]
    assert (roster.who_forgot("a"), roster.who_forgot("b")) == ([M0], [])


def test_who_is_not_ready_again_has_forgotten_nothing_yet():
    roster = a_roster((M0, says("a")))
    roster.hear(Sender(M0, 2), says(state=ProcessState.STARTING), 1.0)
    assert roster.who_forgot("a") == []
    assert roster.unserved() == ["a"]
    roster.hear(Sender(M0, 2), says("a", seq=2), 2.0)
    assert roster.who_forgot("a") == []


def test_older_statuses_change_nothing():
    roster = a_roster((M0, says("a", seq=5)))
    roster.hear(Sender(M0, 1), says("b", seq=4), 1.0)
    assert [one.name for one in roster.statuses[M0].services] == ["a"]
    roster.hear(Sender(M0, 2), says("b", seq=1), 1.0)
    assert [one.name for one in roster.statuses[M0].services] == ["b"], "its numbers begin anew"
    roster.hear(Sender(M0, 1), says("a", seq=6), 1.0)
    assert [one.name for one in roster.statuses[M0].services] == ["b"]


def test_who_was_seen_to_end_is_gone_at_once():
    roster = a_roster((M0, says("a")))
    roster.declare_dead(Sender(M0, 1))
    assert roster.statuses == {}
    assert roster.unserved() == ["a"]
