"""The choice among engines, and what happens to those that cannot make it. Prefills take 1 ms a token."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.wire.control import PrefillMode, PrefillOrder
from mesh.wire.status import DecodeCost, PendingPrefill, PrefillCost
from router.policies.elastic import Elastic, ElasticParameters
from router.policies.parts.outlook import look_ahead
from router.policies.policy import Dispatch, GiveUp, Wait
from router.view.engine_view import engine_view
from tests.router.cluster import D0, M0, M1, P0, P1, SERVICE, make_engine, make_request, make_status, make_view

DECODING = {"num_running": 4, "decode_step_s": 0.04, "min_slack_s": 0.1, "min_tpot_slo_s": 0.1}


def decide(request, *engines, now=0.0, **parameters):
    return Elastic(ElasticParameters(**parameters)).decide(request, make_view(*engines), now)


def queued(*prefills):
    """What an engine tells of its prefills: (seconds left, seconds until due) each."""
    left_s = sum(left_s for left_s, _ in prefills)
    pending = [PendingPrefill(due_s, left_s) for left_s, due_s in prefills]
    return {"prefills": pending, "prefill_remaining_s": left_s}


def where(decision):
    assert isinstance(decision, Dispatch), decision
    return decision.prefill_engine, decision.decode_engine


# --- the choice


def test_the_engine_that_ends_first_takes_it():
    busy = make_engine(P0, **queued((0.5, 0.6)))
    assert where(decide(make_request(100), busy, make_engine(M0, **DECODING))) == (M0, M0)
    assert where(decide(make_request(300, deadline=9), busy, make_engine(M0, **DECODING))) == (M0, M0)
    assert where(decide(make_request(900, deadline=9), busy, make_engine(M0, **DECODING))) == (P0, M0)


def test_prefills_go_in_slack_and_predict_when_they_end():
    decision = decide(make_request(400), make_engine(M0, **DECODING))
    assert (decision.prefill, decision.order) == (PrefillMode.SLACK, PrefillOrder.DEADLINE)
    assert decision.predicted_ttft_s == pytest.approx(0.6)
    assert decision.prefill_s == pytest.approx(0.4)
    assert not decision.multiplex


def test_a_prefill_longer_than_the_slack_is_taken_all_the_same():
    engine = make_engine(M0, **{**DECODING, "min_slack_s": 0.0})
    assert where(decide(make_request(400), engine)) == (M0, M0)


def test_a_warm_engine_wins_when_it_is_sooner():
    busy = make_engine(P1, **queued((0.3, 0.4)))
    warm = {P1: 600}
    assert where(decide(make_request(800, cached=warm), make_engine(P0), busy, make_engine(D0))) == (P1, D0)
    assert where(decide(make_request(700, cached={P1: 200}), make_engine(P0), busy, make_engine(D0))) == (P0, D0)


def test_behind_many_it_waits_in_the_gateway():
    engine = make_engine(P0, **queued((0.1, 0.3), (0.1, 0.4)))
    assert isinstance(decide(make_request(10), engine, make_engine(D0)), Wait)
    assert where(decide(make_request(10), engine, make_engine(D0), depth=3)) == (P0, D0)
    assert where(decide(make_request(10, deadline=0.35), engine, make_engine(D0))) == (P0, D0), "it passes the second"


def test_it_passes_those_that_can_afford_it():
    relaxed, tight = make_engine(P0, **queued((2.0, 3.0))), make_engine(P0, **queued((2.0, 2.3)))
    assert where(decide(make_request(500), relaxed, make_engine(D0))) == (P0, D0)
    assert isinstance(decide(make_request(500), tight, make_engine(D0)), Wait)
    assert where(decide(make_request(200), tight, make_engine(D0))) == (P0, D0)


def test_it_does_not_go_where_it_would_be_late_while_another_engine_could_make_it():
    full = make_engine(P0, **queued((0.1, 0.3), (0.1, 0.4)))
    slow = make_engine(M0, **{**DECODING, "decode_step_s": 0.089, "min_slack_s": 0.0})
    assert isinstance(decide(make_request(200), full, slow), Wait)


def test_decodes_go_where_steps_stay_shortest():
    engines = make_engine(M0, **DECODING), make_engine(M1, **{**DECODING, "decode_step_s": 0.03})
    assert where(decide(make_request(100), make_engine(P0), *engines)) == (P0, M1)


def test_no_decode_joins_where_promises_would_break():
    slow = make_engine(M0, **{**DECODING, "decode_step_s": 0.099})
    assert where(decide(make_request(100), make_engine(P0), slow)) == (P0, P0), "it stays where it was prefilled"
    assert isinstance(decide(make_request(100), slow), Wait)
    assert where(decide(make_request(100), slow, margin=0.0, now=0.0)) == (M0, M0)


def test_steps_are_as_much_longer_as_the_engine_was_wrong_of_late():
    engine = make_engine(M0, **{**DECODING, "decode_step_s": 0.08})
    assert where(decide(make_request(100), engine)) == (M0, M0)
    pool = msgspec.structs.replace(engine.services[SERVICE], decode_error=0.3)
    assert isinstance(decide(make_request(100), msgspec.structs.replace(engine, services={SERVICE: pool})), Wait)


def test_an_engine_that_decodes_nothing_takes_what_can_keep_no_promise():
    idle = make_engine(M0)
    slow_decodes = msgspec.structs.replace(idle.services[SERVICE], decode_cost=DecodeCost(0.5, 0.0))
    slow = msgspec.structs.replace(idle, services={SERVICE: slow_decodes})
    assert where(decide(make_request(100), slow)) == (M0, M0)


def test_a_full_pool_takes_nothing():
    assert isinstance(decide(make_request(16), make_engine(M0, num_free_blocks=10)), Wait)


pending = st.lists(st.builds(PendingPrefill, st.floats(0.1, 3), st.floats(0.01, 0.5)), max_size=3)
decoding = st.floats(0.01, 0.08).map(lambda step_s: {**DECODING, "decode_step_s": step_s, "min_slack_s": step_s})


@given(
    prefill=st.lists(pending, min_size=1, max_size=3),
    multiplex=st.lists(st.tuples(pending, decoding), min_size=1, max_size=3),
    num_tokens=st.integers(1, 900),
)
def test_the_short_cut_finds_what_a_look_at_every_engine_finds(prefill, multiplex, num_tokens):
    engines = [make_engine(f"prefill-{n}", prefills=sorted(told)) for n, told in enumerate(prefill)]
    engines += [
        make_engine(f"multiplex-{n}", prefills=sorted(told), **fields) for n, (told, fields) in enumerate(multiplex)
    ]
    request = make_request(num_tokens, deadline=2.0)
    outlooks = [look_ahead(engine, request, 0.0) for engine in engines]
    possible = [look.finish_s for look in outlooks if look.num_ahead < 2 and not look.makes_late and look.finish_s <= 2]
    decision = decide(request, *engines)
    assert isinstance(decision, Dispatch) == bool(possible)
    if possible:
        assert decision.predicted_ttft_s == pytest.approx(min(possible))


# --- those that cannot make it


def test_the_hopeless_is_told_at_once():
    busy = make_engine(P0, **queued((0.5, 0.6)))
    assert isinstance(decide(make_request(500, deadline=0.9), busy, make_engine(D0)), GiveUp)


def test_the_late_have_an_engine_without_prefills_if_their_clients_want_late_answers():
    """Others would decode where somebody who is in time could."""
    late = make_request(500, deadline=0.9)
    assert isinstance(decide(late, make_engine(P0), make_engine(D0), now=0.5), GiveUp)
    wanted = msgspec.structs.replace(late, may_be_late=True)
    assert where(decide(wanted, make_engine(P0), make_engine(D0), now=0.5)) == (P0, D0)


def test_a_promise_that_no_engine_could_ever_keep_is_not_held_against_the_request():
    impossible = make_request(500, deadline=0.4)
    assert where(decide(impossible, make_engine(P0), make_engine(D0))) == (P0, D0)
    assert isinstance(decide(impossible, make_engine(P0, **queued((0.1, 0.2))), make_engine(D0)), Wait)


def test_with_grace_the_late_take_engines_that_prefill_nothing_else():
    late = make_request(500, deadline=0.4)
    busy = make_engine(P0, **queued((0.1, 0.2)))
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


# --- engines that are not alike


@pytest.mark.parametrize("swap", [False, True])
def test_how_fast_an_engine_is_for_another_service_does_not_matter(swap):
    ids = (P1, P0) if swap else (P0, P1)
    services = make_status(ids[0], services=(SERVICE, "slow")).services
    slow = msgspec.structs.replace(services[1], prefill_cost=PrefillCost(0.0, 0.1))
    shared = engine_view(ids[0], make_status_of(ids[0], [services[0], slow]), 0.0, ())
    busy = make_engine(ids[1], **queued((0.8, 0.95)))
    assert where(decide(make_request(500), busy, shared, make_engine(D0))) == (ids[0], D0)


def make_status_of(engine, services):
    return msgspec.structs.replace(make_status(engine), services=services)


def test_an_engine_that_costs_nothing_takes_it_whatever_the_others_cost():
    free = make_status(P0).services[0]
    free = msgspec.structs.replace(free, prefill_cost=PrefillCost(0.0, 0.0), decode_cost=DecodeCost(0.0, 0.0))
    engine = engine_view(P0, make_status_of(P0, [free]), 0.0, ())
    for other in (M0, P1):
        assert where(decide(make_request(900), engine, make_engine(other), make_engine(D0)))[0] == P0
    later = engine_view(P1, make_status_of(P1, [free]), 0.0, ())
    assert where(decide(make_request(900), make_engine(P0), later, make_engine(D0)))[0] == P1


def test_what_is_late_goes_to_an_idle_engine_though_a_busy_one_would_be_sooner():
    busy = make_engine(P0, **queued((0.1, 5.0)))
    slow = make_engine(M0, **{**DECODING, "decode_step_s": 0.07, "min_slack_s": 0.0})
    request = make_request(100, deadline=1.0)
    assert where(decide(request, busy, slow, make_engine(D0), now=1.5, grace_s=9.0)) == (M0, M0)


@pytest.mark.parametrize("grace_s", [0.0, 9.0])
def test_what_is_late_goes_nowhere_where_it_would_never_end(grace_s):
    stuck = make_engine(P0, **{**DECODING, "decode_step_s": 0.2, "min_slack_s": 0.0})
    decision = decide(make_request(500), stuck, make_engine(D0), now=0.9, grace_s=grace_s)
    assert isinstance(decision, Wait if grace_s else GiveUp)
