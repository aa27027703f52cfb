"""The rules of connections alone: how long each phase may take, and who is closed first."""

import random

from mesh.topology.schema import GatewaySpec
from router.api.http import connections
from router.api.http.connections import Connection, ConnectionPhase, Connections
from router.api.http.server import connections_of


def test_phases_have_their_times():
    one = Connection("a", 0.0)
    assert one.overdue(connections.FIRST_BYTE_S - 0.1) == ""
    assert one.overdue(connections.FIRST_BYTE_S) == "sent no request"
    one.enter(ConnectionPhase.HEAD, 100.0)
    assert one.overdue(100.0 + connections.HEAD_S - 0.1) == ""
    assert "headers" in one.overdue(100.0 + connections.HEAD_S)
    one.enter(ConnectionPhase.BODY, 200.0)
    assert one.overdue(200.0 + connections.BODY_GRACE_S) == ""
    assert "bytes/s" in one.overdue(200.0 + connections.BODY_GRACE_S + 1.0)
    one.num_bytes = connections.BODY_BYTES_PER_S
    assert one.overdue(200.0 + connections.BODY_GRACE_S + 1.0) == ""
    one.enter(ConnectionPhase.ANSWER, 300.0)
    assert one.overdue(1e9) == ""
    one.enter(ConnectionPhase.IDLE, 400.0)
    assert one.overdue(400.0 + connections.KEEP_ALIVE_S - 0.1) == "", "longer than without a request"
    assert one.overdue(400.0 + connections.KEEP_ALIVE_S) == "sent no request"


def test_what_comes_after_an_answer_is_read_for_a_while():
    one = Connection("a", 0.0, ConnectionPhase.BODY)
    one.answered_at = 10.0
    assert one.overdue(10.0 + connections.LINGER_S - 0.1) == ""
    assert "nobody reads" in one.overdue(10.0 + connections.LINGER_S)
    one.num_bytes = connections.LINGER_BYTES + 1
    assert "nobody reads" in one.overdue(10.0)


def test_a_reader_has_to_get_on():
    one = Connection("a", 0.0)
    assert not one.stalls(1_000_000, True, 0.0)
    assert not one.stalls(999_000, True, connections.STALL_S - 1)
    assert one.stalls(998_000, True, connections.STALL_S), "a trickle pins what waits"
    other = Connection("a", 0.0)
    assert not other.stalls(1_000_000, True, 0.0)
    assert not other.stalls(900_000, True, 29.0)
    assert not other.stalls(900_000, True, 31.0)
    assert other.stalls(900_000, True, 59.0)
    assert not other.stalls(0, True, 60.0)


def test_who_is_closed_for_a_new_connection():
    every = Connections(max_all=3, max_of_one=2)
    old, young = Connection("a", 0.0), Connection("a", 5.0)
    assert every.add(old) is None
    assert every.add(young) is None
    newest = Connection("a", 6.0)
    assert every.add(newest) is old, "its own longest idle one"
    assert every.add(Connection("b", 1.0, ConnectionPhase.HEAD)) is None
    other = Connection("c", 7.0)
    assert every.add(other) is young, "the longest idle of all"
    for one in (newest, other):
        every.enter(one, ConnectionPhase.BODY, 8.0)
    late = Connection("b", 9.0, ConnectionPhase.HEAD)
    assert every.add(late) is late, "nobody is idle"
    assert every.refused == {"too many of one client": 1, "too many": 2}
    assert len(every) == 3
    every.check_invariants()


def test_nobody_goes_twice_though_it_takes_time_to_close():
    every = Connections(max_all=4, max_of_one=4)
    idle = [Connection("a", float(since)) for since in range(4)]
    for one in idle:
        every.add(one)
    assert [every.add(Connection("b", 10.0, ConnectionPhase.HEAD)) for _ in range(4)] == idle
    every.enter(idle[0], ConnectionPhase.HEAD, 11.0)
    every.enter(idle[0], ConnectionPhase.IDLE, 12.0)
    every.remove(idle[0])
    every.check_invariants()
    assert len(every) == 4


def test_a_proxy_has_no_share():
    every = Connections(max_all=10, max_of_one=1)
    assert [every.add(Connection("proxy", 0.0, ConnectionPhase.HEAD), is_proxy=True) for _ in range(5)] == [None] * 5


def test_books_agree_whatever_happens():
    chance = random.Random(7)
    every, known = Connections(max_all=20, max_of_one=8), []
    for now in range(3000):
        what = chance.random()
        if what < 0.4 or not known:
            known.append(one := Connection(chance.choice("abcd"), float(now), chance.choice(list(ConnectionPhase))))
            leaves = every.add(one, is_proxy=one.peer == "d")
            assert leaves is None or leaves is one or leaves.phase is ConnectionPhase.IDLE
        elif what < 0.8:
            every.enter(chance.choice(known), chance.choice(list(ConnectionPhase)), float(now))
        else:
            every.remove(known.pop(chance.randrange(len(known))))
        every.check_invariants()
        assert len(every) <= 20


def test_connections_leave_files_for_the_rest():
    spec = GatewaySpec("gateway-0", port=0)
    made = connections_of(spec)
    assert 1 <= made.max_of_one < made.max_all <= spec.max_connections
