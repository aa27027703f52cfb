"""One request's history: its times, its tokens, and which dispatch brought the first of them."""

import pytest

from mesh.wire.requests import FinishReason
from router.generation import TokenBatch
from router.history.records import Outcome
from router.history.timeline import FirstToken, RequestFacts, RequestTimeline, Seen, TokensResumed
from router.policies.policy import Dispatch, Wait
from tests.router.cluster import M0, M1, make_request, make_spec, make_view

ARRIVED_AT = 100.0
SENT = Dispatch(M0, M0, "a rule", 0.1, 0.4)


def timeline() -> RequestTimeline:
    return RequestTimeline(RequestFacts.of(make_spec()), ARRIVED_AT, 1)


def seen(now: float) -> Seen:
    return Seen(now, make_request(), make_view(), set(), set())


def batch(*tokens: int, num_cached: int = 0) -> TokenBatch:
    return TokenBatch(tokens, None, num_cached, None, None)


def test_the_first_token_is_timed_from_the_dispatch_that_brought_it():
    request = timeline()
    request.decide(0, "p", Wait("full"), seen(101.0))
    assert (request.route, request.queued_s) == (None, None)
    request.decide(1, "p", SENT, seen(102.0))
    request.decide(2, "p", SENT, seen(104.0))
    assert request.deliver(batch(5, num_cached=3), M0, 105.0) is None
    assert request.events[-1] == FirstToken(5.0, M0, 1.0, 0.4, 3)
    assert (request.queued_s, request.ttft_s) == (4.0, 5.0)
    request.decide(3, "p", SENT, seen(109.0))
    assert request.queued_s == 4.0
    assert request.route is not None
    assert (request.route.attempt, len(request.decisions)) == (3, 4)


def test_gaps_are_between_batches_with_tokens():
    request = timeline()
    request.deliver(batch(5, num_cached=3), M0, 101.0)
    assert request.deliver(batch(6, 7), M0, 103.0) == 2.0
    assert request.deliver(batch(), M0, 104.0) == 1.0
    assert request.deliver(batch(8), M1, 105.0) == 2.0
    assert (request.delivered.num_tokens, request.delivered.num_cached, request.tpot_s) == (4, 3, pytest.approx(4 / 3))


def test_one_token_has_no_pace():
    request = timeline()
    assert (request.ttft_s, request.tpot_s, request.reason) == (None, None, "")
    request.deliver(batch(5), M0, 101.0)
    assert request.tpot_s is None


@pytest.mark.parametrize(
    ("outcome", "has_pace"), [(Outcome.FINISHED, True), (Outcome.CANCELLED, True), (Outcome.FAILED, False)]
)
def test_only_answers_that_were_wanted_have_a_pace_at_their_end(outcome, has_pace):
    request = timeline()
    request.deliver(batch(5), M0, 101.0)
    request.deliver(batch(6), M0, 102.0)
    request.end(outcome, FinishReason.LENGTH, 103.0)
    assert request.ended is not None
    assert (request.ended.at_s, request.ended.num_tokens, request.reason) == (3.0, 2, "length")
    assert request.ended.tpot_s == (1.0 if has_pace else None)


def test_what_engines_say_of_it_has_its_time_and_forgotten_events_count():
    request = timeline()
    for second in range(1, 200):
        request.accept(M0, ARRIVED_AT + second)
    assert (request.num_events, request.events[-1].at_s) == (199, 199.0)
    assert len(request.events) == request.events.maxlen
    request.hold(M1, 2, 300.0)
    assert request.holds is not None
    assert (request.holds.at_s, request.holds.num_ahead, request.num_events) == (200.0, 2, 199)


def test_tokens_that_resume_say_how_long_they_paused():
    request = timeline()
    request.resume(M0, 100.5)
    assert not request.events, "the first token of all resumes nothing"
    request.deliver(batch(5), M0, 101.0)
    request.change_owner(M1, 101.5)
    request.resume(M1, 102.0)
    assert request.events[-1] == TokensResumed(2.0, M1, 1.0)


def test_reasoning_may_stand_apart_from_promises():
    of_one = timeline()
    of_one.apart_token = 9
    for now, tokens in ((1.0, (4,)), (2.0, (4, 9, 5)), (4.0, (6,)), (6.0, (7,))):
        of_one.deliver(batch(*tokens), "e", of_one.arrived_at + now)
    assert of_one.delivered.num_apart == 3
    assert of_one.tpot_s == pytest.approx((6.0 - 2.0) / 3)
    assert of_one.ttft_s == pytest.approx(1.0)
