from random import Random

from mesh.membership.membership import Joined, Lost, Restarted, Stale
from mesh.wire.control import ProcessState
from mesh.wire.status import GatewayStatus
from router.view.cluster_view import ClusterView
from router.view.engine_work import Reservation
from router.view.monitor import Monitor
from tests.router.cluster import D0, P0, ROLES, SERVICE, make_status, sender_of


def reservation(request="r", engine=P0, prefill_s=0.1):
    return Reservation(request, engine, SERVICE, 100, prefill_s)


def backlog(monitor, engine=P0, now=0.0):
    return monitor.view().engines[engine].backlog_s(now)


def test_engines_enter_the_view_with_a_status_and_leave_with_their_lease():
    monitor = Monitor(lease_s=1.0)
    assert monitor.observe(sender_of(P0), make_status(P0), 0.0) == Joined(sender_of(P0))
    assert monitor.view().engines[P0].received_at == 0.0
    assert monitor.next_deadline() == 1.0
    assert monitor.expire(1.0) == [Lost(sender_of(P0))]
    assert monitor.view().engines == {}


def test_a_pulse_keeps_an_engine_in_the_view_as_it_was():
    monitor = Monitor(lease_s=1.0)
    monitor.observe(sender_of(P0), make_status(P0, 5, num_tokens=5), 0.0)
    monitor.renew(sender_of(P0), 0.9)
    monitor.renew(sender_of(D0), 0.9)
    assert monitor.expire(1.5) == []
    assert monitor.view().engines.keys() == {P0}
    assert monitor.view().engines[P0].received_at == 0.0, "nothing newer is known"
    assert monitor.expire(1.9) == [Lost(sender_of(P0))]


def test_an_overtaken_status_changes_nothing():
    monitor = Monitor(lease_s=1.0)
    monitor.observe(sender_of(P0), make_status(P0, 5, num_tokens=5), 0.0)
    monitor.observe(sender_of(P0), make_status(P0, 4, num_tokens=4), 0.1)
    assert monitor.view().engines[P0].num_tokens == 5


def test_a_new_incarnation_starts_from_nothing_and_the_old_one_is_not_heard():
    monitor = Monitor(lease_s=1.0)
    monitor.observe(sender_of(P0), make_status(P0, 5), 0.0)
    monitor.reserve([reservation()])
    assert monitor.observe(sender_of(P0, 2), make_status(P0, 1), 0.1) == Restarted(sender_of(P0, 2), sender_of(P0))
    assert backlog(monitor, now=0.1) == 0.0
    assert monitor.observe(sender_of(P0), make_status(P0, 6, num_tokens=6), 0.2) == Stale(sender_of(P0))
    assert monitor.view().engines[P0].num_tokens == 0


def test_a_reservation_counts_until_a_status_counts_the_request():
    monitor = Monitor(lease_s=1.0)
    monitor.observe(sender_of(P0), make_status(P0, 1), 0.0)
    monitor.reserve([reservation()])
    assert backlog(monitor) == 0.1
    monitor.observe(sender_of(P0), make_status(P0, 2), 0.0)
    assert backlog(monitor) == 0.1, "not accepted yet"
    monitor.accepted("r", P0, status_seq=4)
    monitor.observe(sender_of(P0), make_status(P0, 3), 0.0)
    assert backlog(monitor) == 0.1, "published before it was accepted"
    monitor.observe(sender_of(P0), make_status(P0, 4), 0.0)
    assert backlog(monitor) == 0.0


def test_a_status_may_overtake_the_acceptance():
    monitor = Monitor(lease_s=1.0)
    monitor.observe(sender_of(P0), make_status(P0, 1), 0.0)
    monitor.reserve([reservation()])
    monitor.observe(sender_of(P0), make_status(P0, 2), 0.0)
    monitor.accepted("r", P0, status_seq=2)
    assert backlog(monitor) == 0.0


def test_a_decode_engine_keeps_its_reservation_until_the_request_is_released():
    monitor = Monitor(lease_s=1.0)
    for engine in (P0, D0):
        monitor.observe(sender_of(engine), make_status(engine, 1), 0.0)
    monitor.reserve([reservation(), reservation(engine=D0, prefill_s=None)])
    monitor.accepted("r", P0, status_seq=1)
    assert monitor.view().engines[D0].num_tokens == 100
    monitor.release("r")
    assert monitor.view().engines[D0].num_tokens == 0


def test_views_that_only_change_in_loads_say_who_may_serve_as_new_ones_would():
    random, monitor, names = Random(7), Monitor(lease_s=1.0), [f"{kind}-{n}" for kind in ROLES for n in range(3)]
    for seq in range(1, 400):
        now, name = 0.05 * seq, random.choice(names)
        state = ProcessState.DRAINING if random.random() < 0.1 else ProcessState.READY
        num_blocks = 50 if random.random() < 0.1 else 100
        status = make_status(name, seq, state=state, num_blocks=num_blocks, num_tokens=random.randrange(1000))
        monitor.observe(sender_of(name), status, now)
        monitor.expire(now)
        view = monitor.view()
        anew = ClusterView(view.engines)
        assert view.serving(SERVICE) == anew.serving(SERVICE)
        assert view.candidates(SERVICE, 10) == anew.candidates(SERVICE, 10)
        assert view.candidates(SERVICE, 1000) == anew.candidates(SERVICE, 1000)


# --- other gateways ---------------------------------------------------------------------------------------------------


def says(state=ProcessState.READY):
    return GatewayStatus(1, state, "local", 1, "", 0, 0)


def make_pair():
    monitor = Monitor(1.0, "gateway-1")
    monitor.observe(sender_of(P0), make_status(P0), 0.0)
    return monitor


def test_peers_are_the_gateways_that_take_requests_and_the_engines_that_do():
    monitor = make_pair()
    assert monitor.view().peers.gateways == ("gateway-1",)
    monitor.hear_gateway(sender_of("gateway-0"), says(), 0.1)
    monitor.hear_gateway(sender_of("gateway-2"), says(ProcessState.DRAINING), 0.1)
    peers = monitor.view().peers
    assert (peers.gateway, peers.gateways) == ("gateway-1", ("gateway-0", "gateway-1"))
    assert [one.id for one in peers.engines] == [P0]
    monitor.observe(sender_of(P0), make_status(P0, 2, state=ProcessState.DRAINING), 0.2)
    assert monitor.view().peers.engines == ()


def test_a_gateway_that_is_silent_or_was_seen_to_end_is_no_peer_any_more():
    monitor = make_pair()
    monitor.hear_gateway(sender_of("gateway-0"), says(), 0.1)
    monitor.hear_gateway(sender_of("gateway-2"), says(), 0.2)
    monitor.declare_dead(sender_of("gateway-0"))
    assert monitor.view().peers.gateways == ("gateway-1", "gateway-2")
    monitor.hear_gateway(sender_of("gateway-0"), says(), 0.3)
    assert monitor.view().peers.gateways == ("gateway-1", "gateway-2"), "a message of an incarnation that is over"
    monitor.observe(sender_of(P0), make_status(P0, 2), 1.1)
    assert monitor.next_deadline() == 1.2
    assert monitor.expire(1.2) == []
    assert monitor.view().peers.gateways == ("gateway-1",)
    monitor.hear_gateway(sender_of("gateway-0", 2), says(), 1.3)
    assert monitor.view().peers.gateways == ("gateway-0", "gateway-1")


def test_peers_stay_the_same_while_only_loads_change():
    monitor = make_pair()
    monitor.hear_gateway(sender_of("gateway-0"), says(), 0.1)
    before = monitor.view().peers
    monitor.observe(sender_of(P0), make_status(P0, 2, num_tokens=5), 0.2)
    monitor.hear_gateway(sender_of("gateway-0"), says(), 0.3)
    assert monitor.view().peers is before
    assert monitor.view().without({P0}).peers is before


def test_where_statuses_may_wait_a_request_that_began_counts_until_the_next_one():
    monitor = Monitor(lease_s=1.0, status_gap_s=0.5)
    monitor.observe(sender_of(P0), make_status(P0, 1), 0.0)
    monitor.reserve([reservation()])
    monitor.began("r")
    assert backlog(monitor) == 0.1
    monitor.observe(sender_of(P0), make_status(P0, 2), 0.5)
    assert backlog(monitor, now=0.5) == 0.0


def test_where_statuses_do_not_wait_a_request_that_began_is_counted():
    monitor = Monitor(lease_s=1.0)
    monitor.observe(sender_of(P0), make_status(P0, 1), 0.0)
    monitor.reserve([reservation()])
    monitor.began("r")
    assert backlog(monitor) == 0.0


def test_decodes_are_foreseen_for_as_long_as_statuses_may_wait():
    slack = {}
    for gap_s in (0.0, 0.8):
        monitor = Monitor(lease_s=10.0, status_gap_s=gap_s)
        monitor.observe(
            sender_of(D0), make_status(D0, 1, min_slack_s=0.1, decode_step_s=0.01, min_tpot_slo_s=0.02), 0.0
        )
        slack[gap_s] = monitor.view().engines[D0].slack_s(0.8)
    assert slack[0.8] > 0 > slack[0.0]
