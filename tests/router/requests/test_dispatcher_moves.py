"""Requests that moved from one engine to another, as the dispatcher follows them."""

from mesh.wire.requests import (
    Cancel,
    Epoch,
    Moved,
    RefusalCode,
)
from router.requests.request_state import ANY_HOP
from tests.router.cluster import M0, M1
from tests.router.requests.dispatching import cancels, only_submit, running_on


def test_the_owner_of_a_request_that_moved_is_watched_before_its_first_token():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    assert world.receive(at, Moved("r", Epoch(0, 1), other)) == []
    assert cancels(world.status(at, incarnation=2)) == []  # the old owner may die
    to, submit = only_submit(world.status(other, incarnation=2))
    assert (to, submit.spec.generated) == (at, [10, 11])


def test_a_request_that_moved_to_an_engine_that_is_dead_already_goes_on_elsewhere():
    world, at = running_on(M0)
    to, submit = only_submit(world.receive(at, Moved("r", Epoch(0, 1), M1)))
    assert (to, submit.epoch) == (at, Epoch(1))


def test_late_and_strange_moves_are_ignored():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    world.tokens(other, 2, 12, epoch=Epoch(0, 2))
    assert world.receive(at, Moved("r", Epoch(0, 1), at)) == []
    assert only_submit(world.status(other, incarnation=2))


def test_the_new_owner_of_a_request_that_is_over_is_told():
    """It was cancelled while its old engine could not be reached, and moved on."""
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    cancelled = Cancel("r", Epoch(0, ANY_HOP))
    assert cancels(world.checked(world.dispatcher.cancel("r", world.now))) == [(at, cancelled)]
    assert cancels(world.receive(at, Moved("r", Epoch(0, 1), other))) == [(other, cancelled)]
    assert cancels(world.status(other)) == [(other, cancelled)], "again, lest it was lost"


def test_the_new_owner_of_an_attempt_that_was_given_up_is_told():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    world.status(at, incarnation=2)
    assert cancels(world.receive(at, Moved("r", Epoch(0, 1), other))) == [(other, Cancel("r", Epoch(0, ANY_HOP)))]


def test_an_engine_that_does_not_know_who_took_a_request_may_get_it_back_at_once():
    world, at = running_on(M0)
    to, submit = only_submit(world.refuse(at, code=RefusalCode.UNKNOWN_OWNER))
    assert (to, submit.epoch, submit.spec.generated) == (at, Epoch(1), [10, 11])
