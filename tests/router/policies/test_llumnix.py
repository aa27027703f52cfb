from math import inf

import pytest
from msgspec.structs import replace

from mesh.wire.control import PrefillOrder, ProcessState
from router.policies.llumnix import Llumnix
from router.view.engine_view import engine_view
from router.view.engine_work import Reservation
from tests.router.cluster import D0, D1, M0, M1, P0, P1, SERVICE, make_request, make_status, make_view


def engine(id_, freeness, *, reservations=(), num_running=0, **numbers):
    status = make_status(id_, num_running=num_running, **numbers)
    [service] = status.services
    service = replace(service, freeness=freeness, num_running=num_running)
    return engine_view(id_, replace(status, services=[service]), 0.0, reservations)


def decide(*engines, **request):
    return Llumnix().decide(make_request(**request), make_view(*engines), 0.0)


def route(*engines):
    decision = decide(*engines)
    return decision.prefill_engine, decision.decode_engine


def sent(*tokens, to=M0):
    return [Reservation(f"r{number}", to, SERVICE, count, 0.1) for number, count in enumerate(tokens)]


def test_the_freest_engine_takes_it_however_many_run_there():
    crowded, quiet = engine(M0, 90.0, num_running=10), engine(M1, 80.0, num_running=2)
    assert route(crowded, quiet) == (M0, M0)


def test_each_phase_has_its_own_choice():
    assert route(engine(P0, 5.0), engine(P1, 6.0), engine(D0, 8.0), engine(D1, 7.0)) == (P1, D0)


def test_no_head_room_is_worse_than_little():
    assert route(engine(M0, -50.0, num_running=4), engine(M1, 1.0, num_running=4)) == (M1, M1)


def test_what_is_emptied_takes_nothing_while_another_can():
    assert route(engine(M0, -inf), engine(M1, -500.0, num_running=4)) == (M1, M1)


def test_a_burst_does_not_herd_onto_an_idle_engine():
    """1600 tokens of room; 400 were sent there, in 2 requests: with 100 more, 367 for each. There, 375 or 350."""
    assert route(engine(M0, 1600.0, reservations=sent(240, 160)), engine(M1, 850.0, num_running=1)) == (M1, M1)
    assert route(engine(M0, 1600.0, reservations=sent(240, 160)), engine(M1, 800.0, num_running=1)) == (M0, M0)


def test_a_long_prompt_goes_where_it_fits():
    """600 tokens are free beside two, 1000 beside ten."""
    few, many = engine(M0, 300.0, num_running=2), engine(M1, 100.0, num_running=10)
    assert decide(few, many).prefill_engine == M0
    assert decide(few, many, num_tokens=800).prefill_engine == M1


def test_what_was_sent_shares_the_room_of_what_runs():
    """100 tokens for each of 4, and 96 taken by a fifth: (400 - 96) / 5."""
    busy = engine(M0, 100.0, num_running=4, reservations=sent(90))
    assert busy.services[SERVICE].freeness == pytest.approx((400 - 96) / 5)


def test_all_who_wait_count_and_not_the_first_alone():
    """Freeness as told has the head's demand in it: 800 tokens are held, 300 wait, and room is 1600 - 800 - 100."""
    numbers = {"num_running": 4, "num_free_blocks": 50, "num_waiting": 3, "num_tokens": 1100}
    queueing = engine(M0, 700 / 4, **numbers)
    assert queueing.services[SERVICE].freeness == pytest.approx((1600 - 800 - 300) / 7)


def test_room_that_is_kept_for_high_priority_is_room_for_the_next_one():
    """1200 tokens are free at the first, all of them kept: nothing for a normal request, 600 for each of two others."""
    favoured, plain = (
        engine(M0, 0.0, num_running=1, num_free_blocks=75),
        engine(M1, 500.0, num_running=2, num_free_blocks=62),
    )
    assert route(favoured, plain) == (M1, M1)
    assert decide(favoured, plain, priority=1).prefill_engine == M0


def test_emptied_engines_are_not_asked_at_all_by_anybody():
    """Their statuses say that they drain."""
    draining = engine(M0, -inf, state=ProcessState.DRAINING)
    assert decide(draining, engine(M1, -9.0, num_running=1), priority=1).prefill_engine == M1


def test_equals_go_by_tokens_in_flight_and_then_by_id():
    assert route(engine(M0, 9.0, num_tokens=2), engine(M1, 9.0, num_tokens=1)) == (M1, M1)
    assert route(engine(M1, 9.0), engine(M0, 9.0)) == (M0, M0)


def test_nobody_waits_in_the_gateway_and_the_numbers_are_told():
    decision = decide(engine(M0, -7.0, num_running=1), deadline=0.1)
    assert (decision.prefill_engine, decision.order) == (M0, PrefillOrder.ARRIVAL)
    assert decision.numbers["decode_freeness"] == -107.0
