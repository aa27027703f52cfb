"""Ways to serve a request, and the one that is taken. Prefills take 1 ms a token, steps 10 ms."""

import msgspec
import pytest

from mesh.wire.control import PrefillMode, PrefillOrder
from mesh.wire.status import DecodeCost, Demand, ForeseenSlack, PendingPrefill
from router.policies.foresight import Foresight, ForesightParameters
from router.policies.policy import Dispatch, GiveUp, Wait
from tests.router.cluster import D0, M0, M1, P0, P1, SERVICE, make_engine, make_request, make_view

COSTLY = DecodeCost(0.005, 0.005)  # 5 ms for each request in a step


def decide(request, *engines, now=0.0, **parameters):
    policy = Foresight(ForesightParameters(**{"margin": 0.0, **parameters}))
    return policy.decide(request, make_view(*engines), now)


def asking(num_tokens, **fields):
    """A request whose answer has 40 tokens or more, nearly surely."""
    return msgspec.structs.replace(make_request(num_tokens), answer_tokens=60, least_tokens=40, **fields)


def decoding(*foreseen, **numbers):
    """What an engine tells that decodes."""
    return {
        "num_running": 4,
        "min_slack_s": 0.0,
        "min_tpot_slo_s": 0.1,
        "foreseen": [ForeseenSlack(*one) for one in foreseen],
        **numbers,
    }


def where(decision):
    assert isinstance(decision, Dispatch), decision
    return decision.prefill_engine, decision.decode_engine


def test_slack_that_is_still_to_come_takes_a_prompt_that_saved_slack_would_not():
    decision = decide(asking(400), make_engine(M0, **decoding((0.5, 20))))
    assert where(decision) == (M0, M0)
    assert (decision.prefill, decision.order) == (PrefillMode.FORESEEN, PrefillOrder.DEADLINE)
    assert decision.multiplex, "the engine checks again"
    assert decision.numbers["spare_s"] == pytest.approx(0.1)


def test_what_would_break_anybodys_promise_waits():
    assert isinstance(decide(asking(600), make_engine(M0, **decoding((0.5, 20)))), Wait)
    assert isinstance(decide(asking(400), make_engine(M0, **decoding((0.5, 20))), margin=0.3), Wait)


def test_the_engine_where_its_first_token_comes_first_takes_it():
    busy = make_engine(M0, prefills=[PendingPrefill(0.9, 0.3)], prefill_remaining_s=0.3)
    assert where(decide(asking(400), busy, make_engine(M1))) == (M1, M1)
    assert where(decide(asking(400), busy, make_engine(M1, **decoding((0.3, 20))))) == (M0, M0)


def test_of_engines_that_keep_all_promises_the_one_where_its_answer_ends_first_takes_it():
    slow = make_engine(M0, **decoding((9.0, 20), decode_step_s=0.03), demand=Demand(4, 400, 240), decode_cost=COSTLY)
    busy = make_engine(M1, prefills=[PendingPrefill(0.9, 0.3)], prefill_remaining_s=0.3, decode_cost=COSTLY)
    assert where(decide(asking(400), slow, busy)) == (M1, M1), "0.7 s and 60 steps of 10 ms, not 0.4 s and 30 ms each"


@pytest.mark.parametrize(("line_s", "best"), [(0.0, M1), (None, M0)])
def test_where_services_take_turns_it_goes_where_that_of_its_own_becomes_longer_by_the_least(line_s, best):
    """60 and 10 more steps of 15 ms, not 60 and 60 more of 10 ms."""
    services = SERVICE, "code"
    idle, other = (
        make_engine(id_, services=services, line_s=line_s, decode_cost=COSTLY, decode_step_s=0.0) for id_ in (M0, M1)
    )
    pool = msgspec.structs.replace(
        other.services[SERVICE], num_requests=1, num_decoding=1, expected=Demand(1, 100, 60, peaks=((50, 150),))
    )
    busy = msgspec.structs.replace(other, num_requests=1, services={**other.services, SERVICE: pool})
    assert where(decide(asking(400), idle, busy)) == (best, best)


def test_a_prefill_engine_keeps_what_it_can():
    assert where(decide(asking(400), make_engine(P0), make_engine(M0, **decoding((0.1, 20))))) == (P0, P0)


def test_it_hands_over_to_engines_that_only_decode():
    assert where(decide(asking(400), make_engine(P0), make_engine(D0))) == (P0, D0)
    full = make_engine(D0, num_free_blocks=5)
    assert where(decide(asking(400), make_engine(P0), full)) == (P0, P0), "unless those have no room"


def test_it_hands_over_what_its_own_engine_could_not_bear():
    no_memory = make_engine(M0, num_free_blocks=9)
    assert where(decide(asking(100), no_memory, make_engine(M1, prefills=[PendingPrefill(0.9, 0.8)],
                                                            prefill_remaining_s=0.8))) == (M0, M1)  # fmt: skip


def test_what_can_no_longer_be_in_time_is_given_up():
    assert isinstance(decide(asking(400, deadline=1.0), make_engine(M0), now=0.7), GiveUp)


def test_it_waits_as_long_as_it_can_still_be_in_time():
    busy = make_engine(M0, prefills=[PendingPrefill(0.9, 0.8)], prefill_remaining_s=0.8)
    assert isinstance(decide(asking(400), busy), Wait)


def test_with_grace_the_late_take_engines_without_prefills():
    request = asking(400, deadline=1.0)
    assert where(decide(request, make_engine(M0), now=0.7, grace_s=9)) == (M0, M0)
    busy = make_engine(M0, prefills=[PendingPrefill(0.9, 0.8)], prefill_remaining_s=0.8)
    assert isinstance(decide(request, busy, now=0.7, grace_s=9), Wait)
    tight = make_engine(M0, **decoding((0.3, 20)))
    assert isinstance(decide(request, tight, now=0.7, grace_s=9), Wait), "it breaks nobody's promise"


def test_a_promise_that_no_engine_could_keep_is_served_late():
    assert where(decide(asking(1500, deadline=1.0), make_engine(M0))) == (M0, M0)


def test_the_late_go_where_their_answer_ends_first():
    slow = make_engine(M0, **decoding((9.0, 20), decode_step_s=0.05))
    assert where(decide(asking(1500, deadline=1.0), slow, make_engine(M1))) == (M1, M1)


def test_prefill_engines_hand_the_late_over():
    assert where(decide(asking(1500, deadline=1.0), make_engine(P0), make_engine(M0))) == (P0, M0)


def test_of_many_it_serves_as_many_as_can_make_it():
    policy = Foresight(ForesightParameters())
    long, short = asking(900, id="long", deadline=1.0), asking(300, id="short", deadline=1.1)
    other = asking(300, id="other", deadline=1.2)
    ranked = policy.rank([long, short, other], make_view(make_engine(P0), make_engine(D0)), 0.0)
    assert [one.id for one in ranked] == ["short", "other", "long"]


def test_a_prefix_that_an_engine_has_counts():
    assert where(decide(asking(800, cached={P1: 600}), make_engine(P0), make_engine(P1), make_engine(D0))) == (P1, D0)
