"""The parts of a request in flight: promises, assignments, contacts and losses."""

from math import inf

import pytest

from mesh.wire.requests import Epoch
from router.policies.policy import Dispatch
from router.requests.request_state import (
    ANY_HOP,
    BACKOFF_S,
    MAX_BACKOFF_S,
    SOON_TOKENS,
    Assignment,
    Contact,
    Losses,
    QueueState,
    RequestPhase,
    TokenDeadline,
)


@pytest.mark.parametrize(("at", "moved"), [(5.0, 13.0), (20.0, 20.0)])
def test_a_lost_request_has_the_promise_of_a_first_token_but_no_earlier_one(at: float, moved: float):
    deadline = TokenDeadline(at, 0.0)
    deadline.move(0, slo_ttft_s=3.0, now=10.0)
    assert deadline.at == moved


def test_a_deadline_stays_where_it_is_until_another_token_has_come():
    deadline = TokenDeadline(0.0, 0.0)
    for num_tokens, now, at in ((4, 10.0, 13.0), (4, 20.0, 13.0), (5, 20.0, 23.0)):
        deadline.move(num_tokens, slo_ttft_s=3.0, now=now)
        assert deadline.at == at


def test_each_dispatch_is_an_attempt_of_its_own():
    assignment = Assignment()
    assert assignment.is_waiting
    assignment.send(Dispatch("p", "d", "a rule", 0.1, 0.2), 1.0)
    assert (assignment.phase, assignment.engines, assignment.sent_at) == (RequestPhase.SENT, ("p", "d"), 1.0)
    assert assignment.any_epoch == Epoch(0, ANY_HOP)
    assignment.leave()
    assert (assignment.is_waiting, assignment.engines) == (True, ())
    assignment.send(Dispatch("m", "m", "a rule", 0.1, 0.2), 2.0)
    assert (assignment.attempt, assignment.engines) == (1, ("m",))


def test_a_new_owner_has_to_prove_itself():
    assignment = Assignment()
    assignment.send(Dispatch("p", "d", "a rule", 0.1, 0.2), 1.0)
    assignment.is_proven = True
    assert assignment.own("d")
    assert (assignment.phase, assignment.engines, assignment.is_proven) == (RequestPhase.RUNNING, ("d",), False)
    assignment.is_proven = True
    assert not assignment.own("d")
    assert assignment.is_proven


def test_a_request_is_heard_of_by_progress_and_by_its_holder():
    contact = Contact(progress_at=3.0)
    assert contact.heard_at == 3.0
    contact.held_at = 4.0
    assert contact.heard_at == 4.0
    contact.denied.add("p")
    contact.ask(5.0)
    assert (contact.asked_at, contact.denied) == (5.0, set())


def test_losses_without_a_token_in_between_are_fruitless():
    losses = Losses()
    for num_tokens, now, num_losses, since in ((0, 1.0, 1, 1.0), (0, 2.0, 2, 1.0), (1, 3.0, 1, 3.0), (1, 4.0, 2, 3.0)):
        losses.count(num_tokens, now, died=False)
        assert (losses.num_losses, losses.fruitless_since) == (num_losses, since)
    assert losses.is_recovering
    assert losses.num_deaths == 0


def test_deaths_count_while_they_come_soon_after_one_another():
    losses = Losses()
    soon = SOON_TOKENS - 1
    for num_tokens, num_deaths in ((0, 1), (soon, 2), (2 * soon, 3), (2 * soon + SOON_TOKENS, 1)):
        losses.count(num_tokens, 0.0, died=True)
        assert losses.num_deaths == num_deaths


def test_engines_are_avoided_for_longer_after_each_refusal_up_to_a_bound():
    losses = Losses(num_refusals=1)
    losses.avoid(["p"], 0.0)
    assert losses.avoids(2 * BACKOFF_S - 0.001) == {"p"}
    assert losses.avoids(2 * BACKOFF_S) == set()
    losses.num_refusals, losses.num_losses = 2, 1
    losses.avoid(["d"], 0.0)
    assert losses.avoided == {"p": 2 * BACKOFF_S, "d": 8 * BACKOFF_S}
    losses.num_refusals = 100
    losses.avoid(["m"], 1.0)
    assert losses.avoided == {"m": 1.0 + MAX_BACKOFF_S}


def test_one_that_was_held_back_keeps_the_time_of_its_first_turn():
    queue = QueueState(reason="full")
    queue.take_turn(1.0)
    assert (queue.reason, queue.turn_at) == ("", -inf)
    queue.was_held = True
    queue.take_turn(2.0)
    queue.take_turn(3.0)
    assert queue.turn_at == 2.0
