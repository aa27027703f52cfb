"""What is left of promises once a request has joined an engine. Prefills take 1 ms a token."""

from math import inf

import msgspec
import pytest

from mesh.wire.status import DecodeCost, Demand, ForeseenSlack, PendingPrefill
from router.policies.parts.promises import (
    MOST_ERROR,
    Errors,
    Margins,
    errors_of,
    first_token,
    joined_step_s,
    may_join,
    own_spare_s,
    spare_s,
)
from router.view.engine_work import Reservation
from tests.router.cluster import M0, SERVICE, make_engine, make_request

EXACT = Errors(1.0, 1.0)
MARGINS = Margins(0.9, 0.9, 0.05)


def queued(*prefills):
    """What an engine tells of its prefills: (seconds left, seconds until due) each."""
    pending = [PendingPrefill(due_s, left_s) for left_s, due_s in prefills]
    return {"prefills": pending, "prefill_remaining_s": sum(left_s for left_s, _ in prefills)}


def asking(num_tokens, **fields):
    return msgspec.structs.replace(make_request(num_tokens), **fields)


# --- the first token


def test_a_first_token_comes_after_the_running_step_and_the_prefills_before_it():
    engine = make_engine(M0, **queued((0.2, 0.5), (0.3, 3.0)), decode_step_s=0.01)
    came = first_token(engine, make_request(100, deadline=1.0), 0.1, 1.0, now=0.0)
    assert came == (pytest.approx(0.31), pytest.approx(0.3))


def test_errors_make_it_later():
    engine = make_engine(M0, **queued((0.2, 0.5)), decode_step_s=0.01)
    assert first_token(engine, make_request(100, deadline=1.0), 0.1, 1.5, now=0.0).finish_s == pytest.approx(0.46)


def test_where_it_would_be_late_there_is_no_first_token():
    engine = make_engine(M0, **queued((0.5, 0.6)), decode_step_s=0.0)
    assert first_token(engine, make_request(100, deadline=0.7), 0.1, 1.0, now=0.0) is not None
    assert first_token(engine, make_request(100, deadline=0.7), 0.21, 1.0, now=0.0) is None


def test_an_engine_without_prefills_is_taken_at_its_word():
    request, idle = make_request(100, deadline=0.7), make_engine(M0, decode_step_s=0.0)
    assert first_token(idle, request, 0.65, 1.2, now=0.0).finish_s == pytest.approx(0.78)
    assert first_token(idle, request, 0.71, 1.0, now=0.0) is None


def test_nor_where_one_behind_it_would_be_late_by_it():
    engine = make_engine(M0, **queued((0.5, 0.6)), decode_step_s=0.0)
    assert first_token(engine, make_request(90, deadline=0.5), 0.09, 1.0, now=0.0) is not None
    assert first_token(engine, make_request(110, deadline=0.5), 0.11, 1.0, now=0.0) is None


def test_nobody_passes_the_step_that_runs():
    long = PendingPrefill(9.0, 0.8, running_s=0.3)
    engine = make_engine(M0, prefills=[long], prefill_remaining_s=0.8, decode_step_s=0.0)
    request = make_request(100, deadline=1.0)
    assert first_token(engine, request, 0.1, 1.0, now=0.0) == (pytest.approx(0.4), pytest.approx(0.5))
    assert first_token(engine, request, 0.1, 1.0, now=0.2).finish_s == pytest.approx(0.2)


def test_an_engine_with_enough_to_compute_before_it_is_sent_nothing():
    request = make_request(100, deadline=5.0)
    assert first_token(make_engine(M0, **queued((0.2, 0.5))), request, 0.1, 1.0, now=0.0) is not None
    assert first_token(make_engine(M0, **queued((0.2, 0.5), (0.2, 0.6))), request, 0.1, 1.0, now=0.0) is None
    many_short = queued(*[(0.01, 0.5)] * 9)
    assert first_token(make_engine(M0, **many_short), request, 0.1, 1.0, now=0.0) is not None


def test_one_that_is_late_already_is_passed():
    engine = make_engine(M0, **queued((0.5, 0.4)), decode_step_s=0.0)
    assert first_token(engine, make_request(100, deadline=0.2), 0.1, 1.0, now=0.0) == (pytest.approx(0.1), 0)


# --- steps


def test_steps_are_those_of_all_that_were_sent_there():
    cost = DecodeCost(0.01, 0.002, 0.0001)
    engine = make_engine(M0, decode_cost=cost, demand=Demand(3, 300, 100))
    request = asking(50, answer_tokens=40)
    assert joined_step_s(engine, request) == pytest.approx(0.01 + 4 * 0.002 + 0.0001 * (300 + 50 + 50 + 20))


def test_who_may_join_finds_memory_and_steps_that_leave_room():
    free, full = make_engine(M0, num_running=1), make_engine(M0, num_running=1, num_free_blocks=9)
    request = asking(10, tpot_slo_s=0.1)
    assert may_join(free, request, 0.09, MARGINS)
    assert not may_join(free, request, 0.091, MARGINS)
    assert not may_join(full, request, 0.01, MARGINS)
    assert not may_join(free, asking(1600, tpot_slo_s=0.1), 0.01, MARGINS)
    assert may_join(make_engine(M0), request, 5.0, MARGINS), "an engine that has nothing takes any"


# --- what is left


def test_prefills_and_longer_steps_take_from_what_is_foreseen():
    foreseen = [ForeseenSlack(1.0, 10), ForeseenSlack(1.5, 100)]
    engine = make_engine(M0, decode_step_s=0.02, foreseen=foreseen)
    assert spare_s(engine, 0.3, 0.02, EXACT) == pytest.approx(0.7)
    assert spare_s(engine, 0.3, 0.03, EXACT) == pytest.approx(0.2), "the one with more steps to come"
    assert spare_s(engine, 0.3, 0.02, Errors(2.0, 1.5)) == pytest.approx(-0.1)
    assert spare_s(make_engine(M0), 0.3, 0.02, EXACT) == inf


def test_what_was_sent_there_and_is_not_counted_yet_has_promises_too():
    sent = Reservation("r", M0, SERVICE, 100, 0.1, answer_tokens=50, tpot_slo_s=0.05, joins_at=0.4, least_tokens=20)
    engine = make_engine(M0, reservations=[sent])
    assert spare_s(engine, 0.5, 0.02, EXACT) == pytest.approx(20 * 0.03 - 0.1), "0.4 s of prefills come before it"


def test_its_own_promise_is_that_of_the_least_answer():
    request = asking(10, tpot_slo_s=0.05, least_tokens=30)
    assert own_spare_s(request, 0.2, 0.02, EXACT) == pytest.approx(30 * 0.03 - 0.2)
    unknown = asking(10, tpot_slo_s=0.05)
    assert own_spare_s(unknown, 0.2, 0.02, EXACT) == pytest.approx(0.03 - 0.2)


@pytest.mark.parametrize(("told", "expected"), [(None, 1.05), (0.01, 1.05), (0.2, 1.2), (3.0, 1 + MOST_ERROR)])
def test_margins_grow_with_what_an_engine_got_wrong(told, expected):
    engine = make_engine(M0)
    pool = msgspec.structs.replace(engine.services[SERVICE], prefill_error=told, decode_error=told)
    engine = msgspec.structs.replace(engine, services={SERVICE: pool})
    assert errors_of(engine, SERVICE, MARGINS) == (pytest.approx(expected), pytest.approx(expected))


def test_behind_a_discipline_a_first_token_waits_for_whom_it_prefers():
    engine = make_engine(M0, **queued((0.5, 0.6)), line_s=0.08)
    assert first_token(engine, make_request(100, deadline=0.7), 0.1, 1.5, now=0.0) == (pytest.approx(0.27), 0.0)
    assert first_token(engine, make_request(100, deadline=0.2), 0.1, 1.5, now=0.0) is None


def test_nothing_stands_in_the_line_of_a_discipline():
    engine = make_engine(M0, **queued((0.5, 0.6)), line_s=0.2)
    assert first_token(engine, make_request(100, deadline=0.7), 0.1, 1.0, now=0.0) is None
