"""Early rejection: refused is what no engine is predicted to serve without a broken promise, and nothing else."""

from random import Random

import msgspec
import pytest

from mesh.topology.schema import PolicySpec
from mesh.wire.control import PrefillMode
from mesh.wire.status import ForeseenSlack
from router.policies.parts.candidates import route
from router.policies.parts.early_rejection import Way, broken_promise, first_kept
from router.policies.policy import Dispatch, GiveUp, Wait
from router.policies.registry import make_policy
from router.view.engine_work import Reservation
from tests.router.cluster import D0, M0, M1, P0, SERVICE, make_engine, make_request, make_view

BUSY = {"prefill_remaining_s": 0.5, "num_tokens": 9, "num_running": 1}


def way_to(engine, request, mode=PrefillMode.CHUNKED):
    return Way(route(request, "", engine, engine, 0.0, mode=mode), engine, engine)


@pytest.mark.parametrize("name", ["colocated", "chunked", "disaggregated", "disaggregated_sjf"])
@pytest.mark.parametrize("rejects", [True, False])
def test_the_late_are_refused_if_asked(name, rejects):
    policy = make_policy(PolicySpec(name, {"reject_late": rejects}), Random(0))
    view = make_view(make_engine(P0, **BUSY), make_engine(M0, **BUSY))
    assert isinstance(policy.decide(make_request(400), view, 0.0), Dispatch)
    assert isinstance(policy.decide(make_request(600), view, 0.0), GiveUp if rejects else Dispatch)


@pytest.mark.parametrize("name", ["colocated", "chunked", "disaggregated", "disaggregated_sjf"])
def test_what_the_first_engine_cannot_keep_goes_to_another_one(name):
    policy = make_policy(PolicySpec(name, {"reject_late": True}), Random(0))
    full = make_engine(M0, num_running=1, max_running=1, reservations=[Reservation("a", M0, SERVICE, 1, None)])
    other = make_engine(M1, prefill_remaining_s=0.1, num_tokens=99, num_running=1, max_running=4)
    decision = policy.decide(make_request(100), make_view(full, other), 0.0)
    assert (decision.prefill_engine, decision.decode_engine) == (M1, M1)


@pytest.mark.parametrize(("mode", "decodes"), [(PrefillMode.CHUNKED, 10), (PrefillMode.FIRST, 1)])
def test_decode_steps_come_beside_each_chunk_that_is_computed_before_a_first_token(mode, decodes):
    engine = make_engine(M0, **BUSY, decode_step_s=0.04)
    pool = engine.services[SERVICE]
    cost = msgspec.structs.replace(pool.prefill_cost, chunk_tokens=100)
    engine = msgspec.structs.replace(engine, services={SERVICE: msgspec.structs.replace(pool, prefill_cost=cost)})
    in_time = make_request(500, deadline=1.001 + decodes * 0.04)
    assert broken_promise(in_time, way_to(engine, in_time, mode), 0.0) is None
    late = make_request(500, deadline=0.99 + decodes * 0.04)
    assert broken_promise(late, way_to(engine, late, mode), 0.0) == "its first token would come 0.01 s too late"


def test_nothing_waits_for_a_place_until_an_answer_ends():
    request = make_request(100)
    full = make_engine(M0, num_running=1, max_running=1, reservations=[Reservation("a", M0, SERVICE, 1, None)])
    assert broken_promise(request, way_to(full, request), 0.0) == "it would wait for one of 1 requests to end"


@pytest.mark.parametrize(("spare_s", "is_kept"), [(0.11, True), (0.09, False)])
def test_a_prompt_spends_what_others_will_have_to_spare(spare_s, is_kept):
    request = make_request(100)
    engine = make_engine(M0, num_running=1, foreseen=[ForeseenSlack(spare_s, 5)])
    assert (broken_promise(request, way_to(engine, request), 0.0) is None) == is_kept


def test_its_own_tokens_come_in_time_unless_it_is_alone_there():
    request = msgspec.structs.replace(make_request(100), tpot_slo_s=0.005)
    alone, beside = (make_engine(M0, num_running=number) for number in (0, 1))
    assert broken_promise(request, way_to(alone, request), 0.0) is None
    assert broken_promise(request, way_to(beside, request), 0.0) == "tokens would come too late"


def test_the_first_way_that_keeps_promises_is_taken_and_the_best_ones_reason_given():
    request = make_request(600)
    late, in_time = (way_to(make_engine(id_, prefill_remaining_s=s), request) for id_, s in ((M0, 0.5), (M1, 0.1)))
    assert first_kept(request, [late, in_time], 0.0) is in_time.dispatch
    assert first_kept(request, [late, late], 0.0) == GiveUp("its first token would come 0.11 s too late")


def test_what_would_be_in_time_waits_while_a_prefill_engine_has_enough_to_compute():
    request, decode_engine = make_request(100), make_engine(D0)
    ways = [
        Way(route(request, "", prefill_engine, decode_engine, 0.0), prefill_engine, decode_engine)
        for prefill_engine in (
            make_engine(P0, prefill_remaining_s=0.2),
            make_engine(P0, prefill_remaining_s=0.2, prefill_waiting_s=0.1, num_waiting=1),
        )
    ]
    assert first_kept(request, ways[:1], 0.0) is ways[0].dispatch
    assert isinstance(first_kept(request, ways[1:], 0.0), Wait)
    assert isinstance(first_kept(make_request(100, deadline=0.3), ways[1:], 0.0), GiveUp)
