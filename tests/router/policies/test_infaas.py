from mesh.wire.control import PrefillMode, PrefillOrder
from router.policies.infaas import Infaas
from router.view.engine_work import Reservation
from tests.router.cluster import D0, D1, M0, M1, P0, P1, SERVICE, make_engine, make_request, make_view


def decide(*engines, **request):
    return Infaas().decide(make_request(**request), make_view(*engines), 0.0)


def route(*engines):
    decision = decide(*engines)
    return decision.prefill_engine, decision.decode_engine


def test_memory_in_use_decides():
    assert route(make_engine(M0, num_tokens=500), make_engine(M1, num_tokens=400)) == (M1, M1)


def test_it_is_the_share_of_the_pool_that_counts():
    large, small = make_engine(M0, num_tokens=500, num_blocks=100), make_engine(M1, num_tokens=400, num_blocks=50)
    assert route(large, small) == (M0, M0)


def test_what_waits_counts_as_if_it_were_in_memory():
    """Statuses count the contexts of all requests held, those without a block included."""
    waiting = make_engine(M0, num_free_blocks=100, num_waiting=3, num_tokens=900)
    running = make_engine(M1, num_free_blocks=50, num_running=9, num_tokens=800)
    assert route(waiting, running) == (M1, M1)


def test_what_was_just_sent_counts():
    sent = Reservation("other", M0, SERVICE, 300, 0.3)
    assert route(make_engine(M0, reservations=[sent]), make_engine(M1, num_tokens=200)) == (M1, M1)


def test_each_phase_has_its_own_choice():
    engines = (
        make_engine(P0, num_tokens=9),
        make_engine(P1),
        make_engine(D0, num_tokens=1),
        make_engine(D1, num_tokens=2),
    )
    assert route(*engines) == (P1, D0)


def test_the_fewer_requests_then_the_id_break_ties():
    assert route(make_engine(M0, num_running=2), make_engine(M1, num_running=1)) == (M1, M1)
    assert route(make_engine(M1), make_engine(M0)) == (M0, M0)


def test_nobody_waits_in_the_gateway_however_full_the_engines():
    decision = decide(make_engine(M0, num_free_blocks=0, num_waiting=50, num_tokens=9000), deadline=0.1)
    assert (decision.prefill_engine, decision.order, decision.prefill) == (
        M0,
        PrefillOrder.ARRIVAL,
        PrefillMode.CHUNKED,
    )
