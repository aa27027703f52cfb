import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mesh.membership.membership import PATIENCE, Joined, Lost, Membership, Renewed, Restarted, Stale, ended_incarnations
from mesh.wire.frames import Sender
from mesh.wire.status import ChildStatus, SupervisorStatus

A1, A2, B1 = Sender("a", 1), Sender("a", 2), Sender("b", 1)


def test_the_first_beacon_joins_and_later_ones_renew():
    members = Membership(lease_s=1.0)
    assert members.observe(A1, 0.0) == Joined(A1)
    assert members.observe(A1, 0.5) == Renewed(A1)
    assert members.next_deadline() == 1.5
    assert members.expire(1.4) == []
    assert members.is_alive("a")


def test_silence_loses_a_process_once():
    members = Membership(lease_s=1.0)
    members.observe(A1, 0.0)
    members.observe(B1, 0.5)
    assert members.expire(1.0) == [Lost(A1)]
    assert members.expire(1.0) == []
    assert members.alive() == {"b": 1}
    assert members.next_deadline() == 1.5


def test_a_lost_process_that_speaks_again_joins():
    members = Membership(lease_s=1.0)
    members.observe(A1, 0.0)
    members.expire(5.0)
    assert members.next_deadline() is None
    assert members.observe(A1, 6.0) == Joined(A1)


def test_a_new_incarnation_replaces_the_old_one():
    members = Membership(lease_s=1.0)
    members.observe(A1, 0.0)
    assert members.observe(A2, 0.1) == Restarted(A2, previous=A1)
    assert members.observe(A1, 0.2) == Stale(A1)
    assert members.is_current(A2)
    assert not members.is_current(A1)


def test_an_old_incarnation_stays_dead_after_the_new_one_was_lost():
    members = Membership(lease_s=1.0)
    members.observe(A1, 0.0)
    members.observe(A2, 0.1)
    members.expire(9.0)
    assert members.observe(A1, 9.0) == Stale(A1)
    assert not members.is_alive("a")


def test_a_stale_beacon_does_not_renew_the_lease():
    members = Membership(lease_s=1.0)
    members.observe(A2, 0.0)
    members.observe(A1, 0.9)
    assert members.expire(1.0) == [Lost(A2)]


def test_an_incarnation_that_is_known_to_have_ended_is_lost_at_once_and_for_good():
    members = Membership(lease_s=1.0)
    members.observe(A1, 0.0)
    members.observe(B1, 0.0)
    assert members.declare_dead(A1) == Lost(A1)
    assert members.declare_dead(A1) is None
    assert members.alive() == {"b": 1}
    assert members.observe(A1, 0.1) == Stale(A1), "a beacon that was on its way"
    assert members.observe(A2, 0.2) == Joined(A2)
    assert members.declare_dead(A1) is None, "a newer incarnation is not touched"
    assert members.is_current(A2)


def test_the_end_of_an_incarnation_may_be_known_before_it_was_heard_of():
    members = Membership(lease_s=1.0)
    assert members.declare_dead(A2) is None
    assert members.observe(A1, 0.0) == Stale(A1)
    assert members.observe(A2, 0.0) == Stale(A2)


def test_supervisors_are_believed_about_their_own_processes_only():
    children = [ChildStatus(name, "engine", None, "restarting", 1, ended_incarnation=7) for name in ("a", "b")]
    children.append(ChildStatus("c", "engine", 1, "running", 0))
    status = SupervisorStatus(1, "here", 1, children)
    supervisor_of = {"a": "supervisor-here", "b": "supervisor-there", "c": "supervisor-here"}
    assert ended_incarnations("supervisor-here", status, supervisor_of) == [Sender("a", 7)]


def test_a_pulse_renews_the_incarnation_that_is_known_and_brings_none_back():
    members = Membership(lease_s=1.0)
    members.renew(A1, 0.0)
    assert not members.is_alive("a")
    members.observe(A1, 0.0)
    members.renew(A1, 0.9)
    members.renew(A2, 1.5)
    assert members.next_deadline() == 1.9
    assert members.expire(1.9) == [Lost(A1)]
    members.renew(A1, 2.0)
    assert not members.is_alive("a")


def hear_on(members, sender, start, leases, every=0.25):
    """Beacons of one incarnation for so many leases of a second; what came of the last."""
    observation = None
    for beat in range(int(leases / every) + 1):
        members.expire(start + beat * every)
        observation = members.observe(sender, start + beat * every)
    return observation


@pytest.mark.parametrize("is_declared_dead", [False, True])
def test_an_incarnation_with_a_lower_number_is_believed_once_it_persists(is_declared_dead):
    members = Membership(lease_s=1.0)
    ahead = Sender("a", 4_000_000_000_000)
    members.observe(ahead, 0.0)
    if is_declared_dead:
        members.declare_dead(ahead)
    members.expire(2.0)
    assert hear_on(members, A1, 2.0, PATIENCE - 0.5) == Stale(A1)
    assert members.observe(A1, 2.0 + PATIENCE) == Joined(A1)
    assert members.is_current(A1)
    assert members.observe(A2, 3.0 + PATIENCE) == Restarted(A2, previous=A1), "numbers count as ever from here on"
    members.check_invariants()


def test_late_beacons_of_an_old_incarnation_stay_stale_however_many_and_however_late():
    members = Membership(lease_s=1.0)
    members.observe(A2, 0.0)
    members.expire(5.0)
    for burst in range(100):
        for beacon in range(50):
            assert members.observe(A1, 5.0 + 2 * burst + beacon / 100) == Stale(A1), "a second passes without one"
    assert not members.is_alive("a")


def test_an_old_incarnation_is_not_believed_while_the_newer_one_is_heard():
    members = Membership(lease_s=1.0)
    for beat in range(200):
        members.observe(A2, beat / 4)
        members.expire(beat / 4)
        assert members.observe(A1, beat / 4) == Stale(A1)
    assert members.is_current(A2)


def test_two_old_incarnations_that_alternate_are_none():
    members = Membership(lease_s=1.0)
    members.observe(Sender("a", 3), 0.0)
    members.expire(5.0)
    for beat in range(200):
        sender = A1 if beat % 2 else A2
        assert members.observe(sender, 5.0 + beat / 4) == Stale(sender)


@given(st.lists(st.integers(1, 2**53), min_size=1, max_size=5), st.data())
def test_whatever_numbers_its_incarnations_had_a_process_that_goes_on_speaking_is_alive_in_time(incarnations, data):
    members, now = Membership(lease_s=1.0), 0.0
    for incarnation in incarnations:
        members.observe(Sender("a", incarnation), now)
        if data.draw(st.booleans()):
            members.declare_dead(Sender("a", incarnation))
        now += data.draw(st.sampled_from([0.0, 0.5, 2.0]))
        members.expire(now)
    last = Sender("a", data.draw(st.integers(1, 2**53)))
    hear_on(members, last, now, PATIENCE + 2)
    assert members.is_current(last)
    members.check_invariants()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3))))
def test_incarnations_never_go_back(beacons):
    members = Membership(lease_s=10.0)
    newest: dict[str, int] = {}
    for time, (process, incarnation) in enumerate(beacons):
        members.observe(Sender(process, incarnation), time / 1000)
        newest[process] = max(newest.get(process, 0), incarnation)
    assert members.alive() == newest


class MembershipMachine(RuleBasedStateMachine):
    """Against the plainest model: every beacon ever taken, searched anew for each question."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.members = Membership(lease_s=1.0)
        self.heard: dict[Sender, float] = {}
        self.ended: set[Sender] = set()

    def newest(self, process: str) -> Sender | None:
        incarnations = [sender for sender in self.heard if sender.process == process]
        return max(incarnations, key=lambda sender: sender.incarnation, default=None)

    @rule(seconds=st.sampled_from([0.125, 0.5, 1.0, 2.0]))
    def wait(self, seconds):
        self.now += seconds
        lost = self.members.expire(self.now)
        assert all(self.heard[event.sender] + 1.0 <= self.now for event in lost)
        assert not {event.sender for event in lost} & self.ended

    @rule(process=st.sampled_from("ab"), incarnation=st.integers(1, 4))
    def hear(self, process, incarnation):
        sender = Sender(process, incarnation)
        newest = self.newest(process)
        observation = self.members.observe(sender, self.now)
        ended = [sender.incarnation for sender in self.ended if sender.process == process]
        is_old = (newest is not None and incarnation < newest.incarnation) or incarnation <= max(ended, default=0)
        assert isinstance(observation, Stale) == is_old
        if not is_old:
            self.heard[sender] = self.now

    @rule(process=st.sampled_from("ab"), incarnation=st.integers(1, 4))
    def declare_dead(self, process, incarnation):
        newest, was_alive = self.newest(process), self.members.is_alive(process)
        lost = self.members.declare_dead(Sender(process, incarnation))
        self.ended |= {Sender(process, number) for number in range(1, incarnation + 1)}
        is_meant = was_alive and newest is not None and newest.incarnation <= incarnation
        assert lost == (Lost(newest) if is_meant else None)

    @invariant()
    def the_living_are_those_heard_within_a_lease(self):
        newest = [self.newest(process) for process in "ab"]
        living = {
            s.process: s.incarnation
            for s in newest
            if s is not None and s not in self.ended and self.heard[s] + 1.0 > self.now
        }
        assert self.members.alive() == living
        self.members.check_invariants()


TestMembership = MembershipMachine.TestCase


def test_who_is_expected_and_not_heard_is_lost_when_its_lease_ends():
    membership = Membership(1.0)
    membership.expect("gateway", 5.0)
    assert membership.next_deadline() == 6.0
    assert [lost.sender.process for lost in membership.expire(6.0)] == ["gateway"]


def test_who_is_expected_joins_when_it_is_heard_and_then_has_one_lease():
    membership = Membership(1.0)
    membership.expect("gateway", 5.0)
    assert isinstance(membership.observe(Sender("gateway", 7), 5.5), Joined)
    membership.expect("gateway", 5.9)
    assert membership.next_deadline() == 6.5
    membership.check_invariants()


def test_a_dead_process_is_expected_like_one_that_was_never_heard():
    """A request of it comes from an engine that knows its next incarnation, or does not know of its end."""
    membership = Membership(1.0)
    membership.observe(Sender("gateway", 7), 4.0)
    membership.declare_dead(Sender("gateway", 7))
    membership.expect("gateway", 5.0)
    membership.check_invariants()
    assert membership.declare_dead(Sender("gateway", 7)) is None, "supervisors say so again and again"
    assert isinstance(membership.observe(Sender("gateway", 7), 5.5), Stale), "it stays dead"
    assert [lost.sender.process for lost in membership.expire(6.0)] == ["gateway"]


def test_the_next_incarnation_of_a_dead_process_joins_when_it_is_heard():
    membership = Membership(1.0)
    membership.declare_dead(Sender("gateway", 7))
    membership.expect("gateway", 5.0)
    assert isinstance(membership.observe(Sender("gateway", 8), 5.5), Joined), "what it sent here is not dropped"
    assert membership.next_deadline() == 6.5
    assert membership.declare_dead(Sender("gateway", 8)) == Lost(Sender("gateway", 8))
    membership.check_invariants()
