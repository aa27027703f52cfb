"""When prefills would be done. They take 1 ms a token here."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.wire.status import PendingPrefill
from router.policies.parts.outlook import look_ahead, prefill_speed, work_ahead_s
from router.view.engine_work import Reservation
from tests.router.cluster import M0, P0, SERVICE, make_engine, make_request

DECODING = {"num_running": 4, "decode_step_s": 0.04, "min_slack_s": 0.1, "min_tpot_slo_s": 0.1}


def finish_s(engine, num_tokens, now=0.0, **fields):
    return look_ahead(engine, make_request(num_tokens, **fields), now).finish_s


def pending(*prefills):
    left_s = sum(left_s for left_s, _ in prefills)
    return {"prefills": [PendingPrefill(due_s, left_s) for left_s, due_s in prefills], "prefill_remaining_s": left_s}


def test_saved_slack_goes_first_and_the_rest_at_the_rate_of_accrual():
    engine = make_engine(M0, **DECODING)
    assert prefill_speed(engine) == pytest.approx(0.6)
    assert finish_s(engine, 100) == pytest.approx(0.1)
    assert finish_s(engine, 400) == pytest.approx(0.1 + 0.3 / 0.6)
    assert finish_s(make_engine(M0, **{**DECODING, "min_slack_s": -0.2}), 300) == pytest.approx(0.5)
    assert finish_s(make_engine(M0, **{**DECODING, "decode_step_s": 0.1}), 400) == inf


def test_what_was_just_sent_is_not_done_however_old_the_status_is():
    sent = [Reservation("other", P0, SERVICE, 400, 0.4, 0.9)]
    place = (0, 5.0)
    for told_s, left_s in ((0.0, 0.4), (0.1, 0.4), (0.7, 0.6)):
        engine = make_engine(P0, reservations=sent, **(pending((told_s, 2.0)) if told_s else {}))
        assert work_ahead_s(engine, place, 0.5) == pytest.approx(left_s)
        assert finish_s(engine, 100, now=0.5, deadline=5.0) == pytest.approx(left_s + 0.1)


@given(st.integers(1, 9000), st.floats(0, 10), st.floats(0.01, 0.09), st.floats(0.1, 1))
def test_decode_steps_and_chunks_that_use_all_slack_take_that_long(num_tokens, slack_s, step_s, promise_s):
    """Step by step: each one adds promise - step of slack, and chunks take what there is."""
    left_s, spent_s, saved_s = num_tokens / 1000, 0.0, slack_s
    for _ in range(100_000):
        chunk_s = min(left_s, saved_s)
        left_s, saved_s, spent_s = left_s - chunk_s, saved_s - chunk_s, spent_s + chunk_s
        if left_s <= 1e-9:
            break
        saved_s, spent_s = saved_s + promise_s - step_s, spent_s + step_s
    engine = make_engine(M0, num_running=1, decode_step_s=step_s, min_slack_s=slack_s, min_tpot_slo_s=promise_s)
    predicted_s = finish_s(engine, num_tokens)
    assert predicted_s <= spent_s + 1e-6, "the last step may leave slack over"
    assert spent_s <= predicted_s + step_s + 1e-6


def test_a_prefill_engine_is_as_fast_as_its_prefills():
    assert prefill_speed(make_engine(P0)) == 1.0
    assert finish_s(make_engine(P0, **pending((0.5, 0.9))), 100, now=0.2) == pytest.approx(0.4)


def test_prefills_ahead_spend_the_slack_first_and_become_decodes():
    engine = make_engine(M0, **DECODING, **pending((0.04, 0.5)))
    joined_speed = 1 - 0.04 / 0.1
    assert finish_s(engine, 300) == pytest.approx(0.04 + 0.06 + 0.24 / joined_speed)


def test_prefills_that_wait_on_an_idle_engine_will_decode_before_this_ones_turn():
    taken = make_engine(M0, reservations=[Reservation("other", M0, SERVICE, 200, 0.2, due_at=0.9)])
    assert finish_s(make_engine(M0), 400) == pytest.approx(0.4)
    assert finish_s(taken, 400) == pytest.approx(0.2 + 0.09 + (0.4 - 0.09) / 0.9)


def handed_over(at_s, tpot_slo_s=0.1):
    return Reservation("handed over", M0, SERVICE, 200, None, tpot_slo_s=tpot_slo_s, joins_at=at_s)


def test_a_decode_that_is_handed_over_meanwhile_saved_nothing_and_is_behind():
    """It joins when 230 of 300 ms are computed, and owes two tokens less what its first step leaves."""
    engine = make_engine(
        M0, **{**DECODING, "min_slack_s": 0.2, "decode_step_s": 0.04}, reservations=[handed_over(0.25)]
    )
    joined_s = engine.joined_step_s(SERVICE, 300)
    left_s, speed = 0.3 - (0.2 + 0.05 * 0.6), 1 - joined_s / 0.1
    owed_s = 2 * 0.1 - (0.1 - joined_s)
    assert finish_s(engine, 300) == pytest.approx(0.25 + owed_s * (1 / speed - 1) + left_s / speed)
    assert finish_s(engine, 200) == pytest.approx(0.2), "it comes when that is done"


@pytest.mark.parametrize(("role_of", "tpot_slo_s"), [(P0, 0.1), (M0, inf)])
def test_a_decode_that_is_handed_over_slows_nothing_down_without_a_promise_or_on_an_engine_that_only_prefills(
    role_of, tpot_slo_s
):
    engine = make_engine(role_of, reservations=[handed_over(0.1, tpot_slo_s)])
    assert finish_s(engine, 300) == pytest.approx(0.3)


def test_those_due_later_are_passed_if_they_can_afford_it():
    engine = make_engine(P0, **pending((0.5, 2.0), (0.3, 9.0)))
    outlook = look_ahead(engine, make_request(100, deadline=1.0), 0.0)
    assert (outlook.finish_s, outlook.num_ahead, outlook.makes_late) == (0.1, 0, False)
    assert look_ahead(engine, make_request(900, deadline=1.0), 0.0).makes_late is False
    assert look_ahead(engine, make_request(1600, deadline=1.8), 0.0).makes_late is True


def test_nobody_passes_the_step_that_runs():
    long = PendingPrefill(9.0, 0.8, running_s=0.3)
    engine = make_engine(P0, prefills=[long], prefill_remaining_s=0.8)
    assert finish_s(engine, 100) == pytest.approx(0.4)
    assert finish_s(engine, 100, now=0.2, deadline=2.0) == pytest.approx(0.2)


def test_those_late_already_are_nobodys_concern():
    engine = make_engine(P0, **pending((0.5, 0.4)))
    outlook = look_ahead(engine, make_request(600, deadline=1.0), 0.0)
    assert (outlook.finish_s, outlook.num_ahead, outlook.makes_late) == (0.6, 0, False)


def test_the_more_important_comes_first():
    engine = make_engine(P0, **pending((0.5, 0.9)))
    assert finish_s(engine, 100, deadline=2.0) == pytest.approx(0.6)
    assert finish_s(engine, 100, deadline=2.0, priority=1) == pytest.approx(0.1)


def test_a_discipline_says_what_comes_first_and_no_slack_is_waited_for():
    engine = make_engine(M0, **DECODING, **pending((0.4, 0.2)), line_s=0.3)
    outlook = look_ahead(engine, make_request(100, deadline=0.1), 0.0)
    assert (outlook.finish_s, outlook.makes_late) == (pytest.approx(0.4), True)


@pytest.mark.parametrize(
    ("line_s", "slack_s", "has_to_wait"), [(0.0, 0.11, False), (0.2, 0.3, True), (0.0, 0.09, True), (None, 0.09, False)]
)
def test_nothing_stands_in_the_line_of_a_discipline_nor_makes_decodes_late_there(line_s, slack_s, has_to_wait):
    """A line is left whoever else comes. And prompts go before decodes there, of whatever service those are."""
    engine = make_engine(M0, **{**DECODING, "min_slack_s": slack_s}, line_s=line_s)
    assert look_ahead(engine, make_request(100), 0.0).makes_late == has_to_wait
