"""The formula, the choice among engines, and what happens to those that cannot make it. Prefills take 1 ms a token."""

from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.messages import DecodeCost, PrefillMode
from router.policies.elastic import Elastic, ElasticParameters, finish_s, prefill_speed, stretched_s
from router.policies.policy import Dispatch, GiveUp, Wait
from router.view import Reservation
from tests.router.cluster import D0, M0, M1, P0, P1, SERVICE, make_engine, make_request, make_view

DECODING = {"num_running": 4, "decode_step_s": 0.04, "min_slack_s": 0.1, "min_tpot_slo_s": 0.1}


def decide(request, *engines, now=0.0, **parameters):
    return Elastic(ElasticParameters(**parameters)).decide(request, make_view(*engines), now)


def where(decision):
    assert isinstance(decision, Dispatch), decision
    return decision.prefill_engine, decision.decode_engine


# --- the formula


def test_saved_slack_goes_first_and_the_rest_at_the_rate_of_accrual():
    assert stretched_s(0.1, 0.1, 0.6) == pytest.approx(0.1)
    assert stretched_s(0.4, 0.1, 0.6) == pytest.approx(0.1 + 0.3 / 0.6)
    assert stretched_s(0.4, -0.2, 0.5) == pytest.approx(0.8)
    assert stretched_s(0.4, 0.1, 0.0) == inf


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0.01, 0.09), st.floats(0.1, 1))
def test_decode_steps_and_chunks_that_use_all_slack_take_that_long(work_s, slack_s, step_s, promise_s):
    """Step by step: each one adds promise - step of slack, and chunks take what there is."""
    left_s, spent_s, saved_s = work_s, 0.0, slack_s
    for _ in range(100_000):
        chunk_s = min(left_s, saved_s)
        left_s, saved_s, spent_s = left_s - chunk_s, saved_s - chunk_s, spent_s + chunk_s
        if left_s <= 1e-9:
            break
        saved_s, spent_s = saved_s + promise_s - step_s, spent_s + step_s
    predicted_s = stretched_s(work_s, slack_s, 1 - step_s / promise_s)
    assert predicted_s <= spent_s + 1e-6, "the last step may leave slack over"
    assert spent_s <= predicted_s + step_s + 1e-6


def test_a_prefill_engine_is_as_fast_as_its_prefills():
    assert prefill_speed(make_engine(P0)) == 1.0
    assert finish_s(make_engine(P0, prefill_remaining_s=0.5), make_request(100), 0.2) == pytest.approx(0.4)


def test_decodes_slow_a_prefill_down_to_what_they_leave():
    engine = make_engine(M0, **DECODING)
    assert prefill_speed(engine) == pytest.approx(0.6)
    assert finish_s(engine, make_request(400), 0.0) == pytest.approx(0.1 + 0.3 / 0.6)


def test_prefills_ahead_spend_the_slack_first():
    engine = make_engine(M0, **DECODING, prefill_waiting_s=0.1, num_waiting=1)
    assert finish_s(engine, make_request(300), 0.0) == pytest.approx(0.1 + 0.3 / 0.6)


def test_prefills_that_wait_on_an_idle_engine_will_decode_before_this_ones_turn():
    idle, taken = make_engine(M0), make_engine(M0, reservations=[Reservation("other", M0, SERVICE, 200, 0.2)])
    assert finish_s(idle, make_request(400), 0.0) == pytest.approx(0.4)
    assert finish_s(taken, make_request(400), 0.0) == pytest.approx(0.2 + 0.09 + (0.4 - 0.09) / 0.9)


# --- the choice


def test_the_engine_that_ends_first_takes_it():
    busy = make_engine(P0, prefill_remaining_s=0.5)
    assert where(decide(make_request(100), busy, make_engine(M0, **DECODING))) == (M0, M0)
    assert where(decide(make_request(300, deadline=9), busy, make_engine(M0, **DECODING))) == (M0, M0)
    assert where(decide(make_request(900, deadline=9), busy, make_engine(M0, **DECODING))) == (P0, M0)


def test_prefills_go_in_slack_and_predict_when_they_end():
    decision = decide(make_request(400), make_engine(M0, **DECODING))
    assert decision.prefill is PrefillMode.SLACK
    assert decision.predicted_ttft_s == pytest.approx(0.6)
    assert decision.prefill_s == pytest.approx(0.4)
    assert not decision.multiplex


def test_a_prefill_longer_than_the_slack_is_taken_all_the_same():
    engine = make_engine(M0, **{**DECODING, "min_slack_s": 0.0})
    assert where(decide(make_request(400), engine)) == (M0, M0)


def test_a_warm_engine_wins_when_it_is_sooner():
    busy = make_engine(P1, prefill_remaining_s=0.3)
    warm = {P1: 600}
    assert where(decide(make_request(800, cached=warm), make_engine(P0), busy, make_engine(D0))) == (P1, D0)
    assert where(decide(make_request(700, cached={P1: 200}), make_engine(P0), busy, make_engine(D0))) == (P0, D0)


def test_the_rest_waits_in_the_gateway():
    full = make_engine(P0, prefill_remaining_s=0.1, num_waiting=1, prefill_waiting_s=0.1)
    assert isinstance(decide(make_request(10), full, make_engine(D0)), Wait)
    assert where(decide(make_request(10), full, make_engine(D0), depth=3)) == (P0, D0)


def test_it_does_not_go_where_it_would_be_late_while_another_engine_could_make_it():
    full = make_engine(P0, prefill_remaining_s=0.1, num_waiting=1, prefill_waiting_s=0.1)
    slow = make_engine(M0, **{**DECODING, "decode_step_s": 0.089, "min_slack_s": 0.0})
    assert isinstance(decide(make_request(200), full, slow), Wait)


def test_decodes_go_where_steps_stay_shortest():
    engines = make_engine(M0, **DECODING), make_engine(M1, **{**DECODING, "decode_step_s": 0.03})
    assert where(decide(make_request(100), make_engine(P0), *engines)) == (P0, M1)


def test_no_decode_joins_where_promises_would_break():
    slow = make_engine(M0, **{**DECODING, "decode_step_s": 0.095})
    assert where(decide(make_request(100), make_engine(P0), slow)) == (P0, P0), "it stays where it was prefilled"
    assert isinstance(decide(make_request(100), slow), Wait)
    assert where(decide(make_request(100), slow, headroom=1.0, now=0.0)) == (M0, M0)


def test_an_engine_that_decodes_nothing_takes_what_can_keep_no_promise():
    idle = make_engine(M0)
    slow_decodes = msgspec.structs.replace(idle.services[SERVICE], decode_cost=DecodeCost(0.5, 0.0))
    slow = msgspec.structs.replace(idle, services={SERVICE: slow_decodes})
    assert where(decide(make_request(100), slow)) == (M0, M0)


def test_a_full_pool_takes_nothing():
    assert isinstance(decide(make_request(16), make_engine(M0, num_free_blocks=10)), Wait)


# --- those that cannot make it


def test_the_hopeless_is_told_at_once():
    busy = make_engine(P0, prefill_remaining_s=0.5)
    assert isinstance(decide(make_request(500, deadline=0.9), busy, make_engine(D0)), GiveUp)


def test_a_promise_that_no_engine_could_ever_keep_is_not_held_against_the_request():
    impossible = make_request(500, deadline=0.4)
    assert where(decide(impossible, make_engine(P0), make_engine(D0))) == (P0, D0)
    assert isinstance(decide(impossible, make_engine(P0, prefill_remaining_s=0.1), make_engine(D0)), Wait)


def test_with_grace_the_late_take_engines_that_prefill_nothing_else():
    late = make_request(500, deadline=0.4)
    busy = make_engine(P0, prefill_remaining_s=0.1)
    assert where(decide(late, busy, make_engine(P1), make_engine(D0), grace_s=5.0)) == (P1, D0)
    assert isinstance(decide(late, busy, make_engine(D0), grace_s=5.0), Wait)


def test_as_many_as_can_make_it_go_first():
    policy, view = Elastic(ElasticParameters()), make_view(make_engine(P0), make_engine(D0))
    waiting = [
        make_request(500, deadline=0.6, id_="long"),
        make_request(200, deadline=0.7, id_="a"),
        make_request(400, deadline=0.9, id_="b"),
    ]
    assert [request.id for request in policy.rank(waiting, view, 0.0)] == ["a", "b", "long"]


def test_nobody_is_tried_while_all_engines_have_their_prefills():
    full = make_engine(P0, prefill_remaining_s=0.1, num_waiting=1, prefill_waiting_s=0.1)
    waiting = [make_request(id_="a"), make_request(id_="b")]
    assert Elastic(ElasticParameters()).rank(waiting, make_view(full, make_engine(D0)), 0.0) == []
