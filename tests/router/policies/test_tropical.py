"""The paper's rules, one by one. Prefills take 1 ms a token here."""

import pytest

from mesh.wire.control import ProcessState
from router.policies.capabilities import UsesPrefixes
from router.policies.parts.balance import MAKERS
from router.policies.policy import Dispatch, Reject, Wait
from router.policies.tropical import Tropical, TropicalParameters
from router.view.engine_work import Reservation
from tests.router.cluster import D0, D1, M0, M1, P0, P1, SERVICE, make_engine, make_request, make_view

BUSY = {"prefill_remaining_s": 0.5}


def decide(request, *engines, now=0.0, watermark=0.9):
    return Tropical(TropicalParameters(watermark)).decide(request, make_view(*engines), now)


def where(decision):
    assert isinstance(decision, Dispatch), decision
    return decision.rule[0], decision.prefill_engine, decision.decode_engine


# --- before less urgent ones


FULL = {"num_free_blocks": 1, "held_by_priority": [(-5, 4), (0, 90), (7, 5)]}


def test_what_is_more_urgent_than_what_holds_the_memory_goes_there_though_it_is_full():
    for priority, expected in ((8, "b"), (1, "b"), (0, None), (-5, None), (-6, None)):
        decision = decide(make_request(200, priority=priority), make_engine(P0), make_engine(M0, **FULL))
        assert (None if isinstance(decision, Wait) else where(decision)) == (expected and (expected, M0, M0))
    assert not decide(make_request(200, priority=1), make_engine(M0, **FULL)).multiplex, "nobody asks for slack"


def test_room_is_better_than_what_others_would_have_to_give_up():
    engines = make_engine(P0), make_engine(M0, **FULL), make_engine(M1, num_tokens=999)
    assert where(decide(make_request(200, priority=1), *engines)) == ("1", P0, M1)


def test_only_what_is_less_urgent_gives_way():
    small = make_engine(M0, num_free_blocks=1, held_by_priority=[(0, 4), (3, 95)])
    assert isinstance(decide(make_request(100, priority=1), small), Wait)
    assert where(decide(make_request(60, priority=1), small))[1:] == (M0, M0)


# --- rule 1


def test_rule_1_takes_an_idle_prefill_engine():
    decision = decide(make_request(100), make_engine(P0), make_engine(M0))
    assert where(decision) == ("1", P0, M0)
    assert decision.predicted_ttft_s == pytest.approx(0.1)
    assert not decision.multiplex


def test_rule_1_has_no_deadline_test():
    assert where(decide(make_request(1000, deadline=0.001), make_engine(P0), make_engine(M0))) == ("1", P0, M0)


def test_rule_1_breaks_ties_by_tokens_in_flight():
    engines = make_engine(P0, num_tokens=9), make_engine(P1, num_tokens=8), make_engine(M0)
    assert where(decide(make_request(), *engines)) == ("1", P1, M0)


def test_rule_1_hands_over_to_the_least_loaded_decode_engine():
    engines = make_engine(P0), make_engine(M0, num_tokens=9), make_engine(D1, num_tokens=8)
    assert where(decide(make_request(), *engines)) == ("1", P0, D1)


def test_rule_1_skips_decode_engines_above_their_watermark():
    full = make_engine(M0, num_free_blocks=10)
    assert where(decide(make_request(16), make_engine(P0), full, make_engine(M1, num_tokens=999))) == ("1", P0, M1)
    assert isinstance(decide(make_request(16), make_engine(P0), full), Wait)
    assert where(decide(make_request(16), make_engine(P0), full, watermark=1.0)) == ("1", P0, M0)


def test_a_dispatch_not_yet_counted_makes_an_engine_busy():
    taken = make_engine(P0, reservations=[Reservation("other", P0, SERVICE, 100, prefill_s=0.1)])
    assert where(decide(make_request(), taken, make_engine(P1), make_engine(M0))) == ("1", P1, M0)


# --- rule 2


def test_rule_2_queues_behind_one_prefill_if_that_is_in_time():
    engines = make_engine(P0, **BUSY), make_engine(M0, min_slack_s=0.0)
    decision = decide(make_request(500, deadline=1.0), *engines)
    assert where(decision) == ("2", P0, M0)
    assert decision.predicted_ttft_s == pytest.approx(1.0)
    assert isinstance(decide(make_request(501, deadline=1.0), *engines), Wait)


def test_rule_2_never_queues_behind_two():
    engines = make_engine(P0, **BUSY, num_waiting=1, prefill_waiting_s=0.1), make_engine(M0, min_slack_s=0.0)
    assert isinstance(decide(make_request(10, deadline=9.0), *engines), Wait)


def test_rule_2_counts_the_age_of_a_status():
    engines = make_engine(P0, **BUSY, age_s=0.4), make_engine(M0, min_slack_s=0.0)
    assert where(decide(make_request(500, deadline=1.0), *engines, now=0.4)) == ("2", P0, M0)


# --- rule 3


@pytest.mark.parametrize(("slack_s", "fits"), [(0.1, False), (0.101, True), (None, True)])
def test_rule_3_multiplexes_into_slack(slack_s, fits):
    busy = make_engine(P0, **BUSY, num_waiting=1)
    decision = decide(make_request(100), busy, make_engine(M0, min_slack_s=slack_s))
    if fits:
        assert where(decision) == ("3", M0, M0)
        assert decision.multiplex
    else:
        assert isinstance(decision, Wait)


def test_rule_3_needs_a_watermark_below_the_threshold():
    assert isinstance(decide(make_request(16), make_engine(M0, num_free_blocks=10)), Wait)
    assert where(decide(make_request(16), make_engine(M0, num_free_blocks=11))) == ("3", M0, M0)


def test_rule_3_breaks_ties_by_tokens_in_flight():
    assert where(decide(make_request(), make_engine(M0, num_tokens=9), make_engine(M1))) == ("3", M1, M1)


def test_rule_3_counts_prefills_that_spend_the_slack_already():
    engine = make_engine(M0, min_slack_s=0.55, prefill_waiting_s=0.5, num_waiting=1)
    assert isinstance(decide(make_request(100, deadline=9.0), engine), Wait)
    assert where(decide(make_request(40, deadline=9.0), engine)) == ("3", M0, M0)


def test_rule_3_has_a_deadline_only_behind_other_prefills():
    assert where(decide(make_request(1000, deadline=0.001), make_engine(M0))) == ("3", M0, M0)
    assert isinstance(decide(make_request(1000, deadline=0.001), make_engine(M0, num_waiting=1)), Wait)


def test_decode_engines_take_no_prefills_while_others_live():
    assert isinstance(decide(make_request(), make_engine(P0, **BUSY, num_waiting=1), make_engine(D0)), Wait)


# --- rule 4, and what is left of a mesh


def test_rule_4_says_what_it_waits_for():
    busy = make_engine(P0, **BUSY, num_waiting=1)
    assert "slack" in decide(make_request(), busy, make_engine(M0, min_slack_s=0.0)).reason
    assert "KV pool" in decide(make_request(), busy, make_engine(M0, num_free_blocks=0)).reason
    assert SERVICE in decide(make_request()).reason


@pytest.mark.parametrize("engine", [P0, D0, M0])
def test_any_engine_serves_alone(engine):
    assert where(decide(make_request(), make_engine(engine)))[1:] == (engine, engine)


def test_a_request_larger_than_every_pool_is_rejected_with_both_numbers():
    decision = decide(make_request(1600), make_engine(P0), make_engine(M0))
    assert isinstance(decision, Reject)
    assert "1600" in decision.reason
    assert isinstance(decide(make_request(1599), make_engine(P0), make_engine(M0)), Dispatch)


def test_a_pool_too_small_is_passed_over_whatever_its_role():
    small = make_engine(P0, num_blocks=2)
    assert where(decide(make_request(100), small, make_engine(M0))) == ("3", M0, M0)


def test_engines_that_drain_or_start_get_nothing():
    for state in (ProcessState.DRAINING, ProcessState.STARTING):
        engines = make_engine(P0, state=state), make_engine(P1), make_engine(D0, state=state), make_engine(M0)
        assert where(decide(make_request(), *engines)) == ("1", P1, M0)


# --- balance


def balanced(balance):
    policy = Tropical(TropicalParameters(balance=balance))
    return lambda request, *engines: where(policy.decide(request, make_view(*engines), 0.0))


def test_engines_take_turns_in_each_phase():
    decide_next = balanced("round_robin")
    engines = make_engine(P0), make_engine(P1), make_engine(M0), make_engine(M1, num_tokens=999)
    chosen = [decide_next(make_request(), *engines) for _ in range(4)]
    assert chosen == [("1", P0, M0), ("1", P1, M1), ("1", P0, M0), ("1", P1, M1)]


def test_turns_go_on_where_an_engine_does_not_suit():
    decide_next = balanced("round_robin")
    busy = make_engine(P0, **BUSY, num_waiting=1)
    engines = busy, make_engine(M0), make_engine(M1)
    assert [decide_next(make_request(), *engines)[1] for _ in range(3)] == [M0, M1, M0]
    assert decide_next(make_request(), busy, make_engine(M0), make_engine(M1, num_free_blocks=1))[1] == M0


def test_the_cache_decides_among_engines_that_a_rule_allows():
    decide_next = balanced("cache_aware")
    engines = make_engine(P0), make_engine(P1, num_tokens=9), make_engine(M0, num_tokens=9), make_engine(M1)
    assert decide_next(make_request(cached={P1: 32}), *engines) == ("1", P1, M1)
    assert decide_next(make_request(), *engines) == ("1", P0, M1), "without, load does"
    assert decide_next(make_request(cached={M0: 32, M1: 16}), *engines[2:]) == ("3", M0, M0)


def test_what_is_cached_needs_less_slack():
    busy = make_engine(P0, **BUSY, num_waiting=1)
    engines = busy, make_engine(M0, min_slack_s=0.06)
    assert balanced("cache_aware")(make_request(100, cached={M0: 64}), *engines) == ("3", M0, M0)
    assert isinstance(decide(make_request(100), *engines), Wait)


def test_only_balance_by_cache_looks_at_prefixes():
    kinds = {name: Tropical(TropicalParameters(balance=name)).offers(UsesPrefixes) for name in MAKERS}
    assert [name for name, capability in kinds.items() if capability] == ["cache_aware"]
