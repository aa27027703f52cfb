"""An engine prefills 1000 tokens a second, takes 10 ms for a step of decodes, and 90 % of 1 s and of 100 ms count."""

from collections import Counter
from random import Random

import pytest

from mesh.wire.control import PrefillOrder
from router.policies.policy import Dispatch, GiveUp
from router.policies.predicted_latency import PredictedLatency, PredictedLatencyParameters
from tests.router.cluster import D0, D1, M0, M1, P0, P1, make_engine, make_request, make_view

MANY = 400


def policy(seed=0, **parameters):
    return PredictedLatency(PredictedLatencyParameters(**parameters), Random(seed))


def decisions(one, *engines, **request):
    return [one.decide(make_request(**request), make_view(*engines), 0.0) for _ in range(MANY)]


def prefilled(one, *engines, **request):
    return Counter(decision.prefill_engine for decision in decisions(one, *engines, **request))


def test_of_engines_in_time_the_one_with_the_least_margin_is_likeliest():
    busy, idle = make_engine(M0, prefill_waiting_s=0.5), make_engine(M1)
    assert prefilled(policy(), busy, idle)[M0] > 0.9 * MANY
    assert prefilled(policy(prefer="most"), busy, idle)[M1] > 0.9 * MANY


def test_the_lot_falls_by_margin():
    """Margins of 0.8, 0.4 and 0 s: the second is drawn half as often as the one that is packed first."""
    engines = [make_engine(f"multiplex-{n}", prefill_waiting_s=0.4 * n) for n in range(3)]
    drawn = prefilled(policy(), *engines)
    assert drawn["multiplex-2"] > 1.5 * drawn["multiplex-1"] > 15 * drawn["multiplex-0"]


def test_a_tenth_of_the_promise_is_kept_back():
    """Its prompt takes 100 ms: behind 0.85 s it is in time by the promise, and late by what counts of it."""
    late, idle = make_engine(M0, prefill_waiting_s=0.85), make_engine(M1)
    assert prefilled(policy(), late, idle)[M0] < 0.05 * MANY
    assert prefilled(policy(buffer=1.0), late, idle)[M0] > 0.9 * MANY


def test_engines_that_are_late_are_explored_now_and_then():
    late, idle = make_engine(M0, prefill_waiting_s=5.0), make_engine(M1)
    assert 0 < prefilled(policy(), late, idle)[M0] < 0.05 * MANY


def test_tpot_counts_where_one_engine_serves_both_phases():
    slow, idle = make_engine(M0, num_running=4, decode_step_s=0.095, min_slack_s=1.0), make_engine(M1)
    assert prefilled(policy(), slow, idle)[M0] < 0.05 * MANY


def test_where_all_are_late_idle_ones_are_drawn_and_then_the_least_late():
    late, idle = make_engine(M0, prefill_waiting_s=2.0, num_waiting=1), make_engine(M1)
    assert prefilled(policy(), late, idle, num_tokens=1200)[M1] == MANY
    worse = make_engine(M1, prefill_waiting_s=9.0, num_waiting=1)
    assert prefilled(policy(), late, worse)[M0] > 0.9 * MANY


def test_prompts_that_are_mostly_cached_stay():
    drawn = prefilled(policy(prefer="most"), make_engine(M0), make_engine(M1), cached={M0: 80})
    assert drawn[M0] > 0.95 * MANY
    assert prefilled(policy(prefer="most"), make_engine(M0), make_engine(M1), cached={M1: 79})[M0] < 0.9 * MANY


def test_a_cache_behind_a_long_queue_is_left():
    far = make_engine(M0, prefill_waiting_s=6.0)
    assert prefilled(policy(), far, make_engine(M1), cached={M0: 90}, deadline=20.0)[M1] > 0
    near = make_engine(M0, prefill_waiting_s=4.0)
    assert prefilled(policy(), near, make_engine(M1), cached={M0: 90}, deadline=20.0)[M0] > 0.95 * MANY


def test_each_phase_has_its_own_promise():
    """TTFT is the prefill engine's, TPOT the decode engine's, and what decode engines have cached counts nothing."""
    prefill_engines = make_engine(P0), make_engine(P1, prefill_waiting_s=5.0)
    decode_engines = make_engine(D0, num_running=9, decode_step_s=0.2), make_engine(D1)
    drawn = decisions(policy(), *prefill_engines, *decode_engines, cached={D0: 100})
    routes = Counter((one.prefill_engine, one.decode_engine) for one in drawn)
    assert routes[P0, D1] > 0.95 * MANY
    assert {one.order for one in drawn} == {PrefillOrder.ARRIVAL}


@pytest.mark.parametrize(("priority", "kind"), [(0, Dispatch), (-1, GiveUp)])
def test_only_what_may_be_shed_is_refused_when_nobody_is_in_time(priority, kind):
    late = make_engine(M0, prefill_waiting_s=2.0, num_waiting=1)
    assert isinstance(policy().decide(make_request(priority=priority), make_view(late), 0.0), kind)


def test_what_may_be_shed_is_served_by_an_idle_engine():
    decision = policy().decide(
        make_request(2000, priority=-1, deadline=0.5), make_view(make_engine(M0, num_blocks=200)), 0.0
    )
    assert isinstance(decision, Dispatch)
