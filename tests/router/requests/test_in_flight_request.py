"""One request in its gateway: when it is due, how long it waits, and what the next engine and the policy see of it."""

from math import inf

import msgspec
import pytest

from mesh.wire.requests import Epoch, Sampling, Submit, TokenLogprobs
from router.policies.policy import Dispatch
from router.requests.in_flight_request import LOOK_S, InFlightRequest
from router.requests.limits import DispatchLimits
from tests.router.cluster import D0, M0, P0, SERVICE, make_delta, make_in_flight, make_spec

LIMITS = DispatchLimits(8, 4, reply_s=1.0, stall_s=60.0, recovery_s=30.0, patience_s=600.0)
HANDED_OVER = Dispatch(P0, D0, "a rule", 0.1, 0.5)
KEPT = Dispatch(M0, M0, "a rule", 0.1, 0.5)


def running(dispatch: Dispatch = KEPT, **fields: object) -> InFlightRequest:
    """One that arrived at 0, was sent at 2 and accepted at 3."""
    request = make_in_flight(make_spec(**fields))
    request.send(dispatch, 2.0)
    request.assignment.own(dispatch.decode_engine)
    request.contact.progress_at = 3.0
    return request


def take(request: InFlightRequest, *tokens: int, offset: int = 0, now: float = 4.0, **fields: object) -> None:
    batches = request.stream.take(make_delta(offset, *tokens, **fields), now)
    assert isinstance(batches, list)
    for batch in batches:
        request.timeline.deliver(batch, M0, now)


def recovering(num_tokens: int = 2) -> InFlightRequest:
    """One whose engine was lost at 10."""
    request = running()
    if num_tokens:
        take(request, *range(num_tokens))
    request.losses.count(num_tokens, 10.0, died=True)
    request.wait_again(10.0)
    return request


# --- when it is due


def test_one_that_waits_for_an_answer_is_due_when_that_is():
    request = make_in_flight(make_spec())
    request.send(HANDED_OVER, 2.0)
    assert (request.due(LIMITS, 2.5), request.silence) == (3.0, f"{P0} did not answer")


def test_one_that_runs_is_due_long_after_it_was_heard_of():
    request = running()
    assert (request.due(LIMITS, 5.0), request.silence) == (3.0 + 60.0 + 4 * 0.5, f"{M0} fell silent")
    request.contact.held_at = 7.0
    assert request.due(LIMITS, 8.0) == 7.0 + 60.0 + 4 * 0.5


def test_a_gap_is_due_sooner_unless_silence_is_due_before_it():
    request = running()
    take(request, 5, offset=1, now=4.0)
    assert (request.due(LIMITS, 4.0), request.silence) == (5.0, "tokens from 0 on did not arrive")
    request.stream.gap_since = 65.0
    assert request.due(LIMITS, 65.0) == 65.0


@pytest.mark.parametrize(("now", "due"), [(0.0, 0.3), (0.3, 1.0), (1.0, 1.0)])
def test_one_that_waits_is_due_when_an_engine_is_avoided_no_longer_and_at_its_deadline(now: float, due: float):
    request = make_in_flight(make_spec(slo_ttft_s=1.0))
    request.losses.avoided = {P0: 0.3}
    assert request.due(LIMITS, now) == due


def test_one_that_may_be_late_is_due_again_when_it_may_be_later_no_more():
    request = make_in_flight(make_spec(slo_ttft_s=1.0))
    request.deadline.grace_s = 2.0
    assert (request.expires_at(LIMITS), request.due(LIMITS, 0.0), request.due(LIMITS, 1.0)) == (3.0, 1.0, 3.0)


def test_all_that_are_recovered_look_for_engines_at_the_same_times():
    request = recovering()
    assert (request.due(LIMITS, 11.5), request.due(LIMITS, 3 * LOOK_S)) == (15.0, 20.0)


# --- how long it waits


def test_a_recovered_request_waits_while_engines_could_take_it_and_for_a_bounded_time():
    request = recovering()
    assert (request.deadline.at, request.expires_at(LIMITS)) == (11.0, 41.0)
    request.queue.engine_seen_at = 50.0
    assert request.expires_at(LIMITS) == 80.0
    request.queue.engine_seen_at = 5000.0
    assert request.expires_at(LIMITS) == 611.0


def test_a_refused_request_keeps_its_deadline():
    request = running()
    request.wait_again(10.0)
    assert (request.losses.is_recovering, request.deadline.at, request.engines) == (False, 1.0, ())


def test_a_request_with_tokens_is_recovered_whatever_it_waits_for():
    request = running()
    take(request, 5)
    request.wait_again(10.0, has_slice_ended=True)
    assert (request.losses.is_recovering, request.queue.has_slice_ended) == (True, True)
    assert (request.queue.engine_seen_at, request.deadline.at, request.view.deadline) == (10.0, 11.0, 11.0)


def test_what_waits_is_ordered_by_importance_then_deadline_then_arrival():
    specs = [make_spec(slo_ttft_s=2.0), make_spec(slo_ttft_s=1.0), make_spec(slo_ttft_s=9.0, priority=1)]
    first, second, important = (make_in_flight(spec) for spec in specs)
    twin = make_in_flight(specs[0], number=2)
    assert sorted([twin, first, second, important], key=lambda one: one.order) == [important, second, first, twin]


@pytest.mark.parametrize("spoil", ["begin", "recall", "leave"])
def test_only_what_an_engine_has_and_has_not_begun_is_recalled_once(spoil: str):
    request = running()
    assert request.may_be_recalled
    match spoil:
        case "begin":
            take(request, 5)
        case "recall":
            request.assignment.was_recalled = True
        case "leave":
            request.wait_again(10.0)
    assert not request.may_be_recalled


# --- what others see


def test_the_next_engine_gets_all_tokens_and_ages():
    request = recovering()
    spec = request.continuation(20.0)
    assert (spec.generated, spec.age_s, spec.first_token_age_s) == ([0, 1], 20.0, 16.0)


def test_a_request_that_was_held_back_arrives_as_if_it_had_come_when_its_turn_did():
    request = make_in_flight(make_spec(slo_ttft_s=1.0))
    request.queue.was_held = True
    submit = request.send(KEPT, 5.0)
    assert (submit.spec.age_s, submit.spec.first_token_age_s) == (0.0, None)
    assert request.reservations(KEPT, 6.0)[0].due_at == 6.0


def test_probabilities_of_the_prompt_are_asked_for_until_they_were_told():
    sampling = Sampling(max_tokens=16, seed=7, prompt_logprobs=1)
    request = make_in_flight(msgspec.structs.replace(make_spec(), sampling=sampling))
    request.send(KEPT, 2.0)
    assert request.continuation(3.0).sampling.prompt_logprobs == 1
    take(request, 5, prompt_logprobs=[None, TokenLogprobs(1, -1.0, [])])
    assert request.continuation(3.0).sampling.prompt_logprobs is None


@pytest.mark.parametrize(("dispatch", "decode_engine"), [(HANDED_OVER, D0), (KEPT, None)])
def test_only_an_engine_that_is_to_hand_over_is_told_to_whom(dispatch: Dispatch, decode_engine: str | None):
    submit = make_in_flight(make_spec()).send(dispatch, 2.0)
    assert isinstance(submit, Submit)
    assert (submit.epoch, submit.decode_engine) == (Epoch(0), decode_engine)


def test_a_dispatch_takes_room_for_its_tokens_and_one_more_on_each_of_its_engines():
    request = make_in_flight(make_spec(num_tokens=100, expected=(20,)))
    request.send(HANDED_OVER, 0.0)
    take(request, 5, 6)
    prefill, decode = request.reservations(HANDED_OVER, 6.0)
    assert (prefill.engine, prefill.service, prefill.num_tokens, prefill.prefill_s) == (P0, SERVICE, 103, 0.1)
    assert (decode.engine, decode.num_tokens, decode.prefill_s, decode.due_at) == (D0, 103, None, inf)
    assert (prefill.answer_tokens, decode.answer_tokens) == (0, 20)
    (kept,) = request.reservations(KEPT, 6.0)
    assert (kept.engine, kept.prefill_s, kept.answer_tokens) == (M0, 0.1, 20)


def test_policies_see_what_was_generated_here_and_before():
    request = make_in_flight(make_spec(num_tokens=100, generated=[1, 2, 3], expected=(4, 9)))
    request.send(KEPT, 2.0)
    take(request, 5, offset=3)
    assert request.view.num_generated == 3
    request.wait_again(3.0)
    assert (request.view.num_tokens, request.view.num_generated, request.view.answer_tokens) == (104, 4, 9)
