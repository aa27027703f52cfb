from hypothesis import given
from hypothesis import strategies as st

from router.requests.alarms import Alarms


def test_alarms_go_off_in_order_and_once():
    alarms = Alarms()
    alarms.set("b", 2.0)
    alarms.set("a", 1.0)
    assert alarms.next() == 1.0
    assert alarms.pop(0.9) == []
    assert alarms.pop(2.0) == ["a", "b"]
    assert alarms.pop(2.0) == []
    assert alarms.next() is None


def test_an_alarm_moves_forward_only():
    alarms = Alarms()
    alarms.set("a", 2.0)
    alarms.set("a", 1.0)
    alarms.set("a", 3.0)
    assert alarms.pop(1.0) == ["a"]
    alarms.set("a", 2.0)
    assert alarms.pop(2.0) == ["a"], "set to the moment of a stale entry"
    assert "a" not in alarms


def test_a_cleared_alarm_does_not_go_off():
    alarms = Alarms()
    alarms.set("a", 1.0)
    alarms.clear("a")
    alarms.clear("a")
    assert alarms.pop(9.0) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9))))
def test_everyone_is_woken_at_the_earliest_moment_asked_for(calls):
    alarms, earliest = Alarms(), {}
    for id_, due in calls:
        alarms.set(id_, due)
        earliest[id_] = min(due, earliest.get(id_, due))
    for now in range(10):
        assert set(alarms.pop(now)) == {id_ for id_, due in earliest.items() if due == now}
