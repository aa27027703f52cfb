"""What was dispatched and not yet counted: from when on a status counts it, and when it is let go."""

import pytest

from router.view.engine_work import Reservation
from router.view.reservations import Reservations
from tests.router.cluster import D0, P0, SERVICE


@pytest.fixture
def handed_over() -> Reservations:
    """A request that goes to two engines."""
    reservations = Reservations()
    for engine in (P0, D0):
        reservations.add(Reservation("r", engine, SERVICE, 100, 0.1))
    return reservations


def held(reservations: Reservations) -> tuple[int, int]:
    return len(reservations.of(P0)), len(reservations.of(D0))


def test_nothing_is_held_for_an_engine_that_was_sent_nothing():
    assert Reservations().of(P0) == []


def test_the_status_that_counts_it_ends_it_and_none_before(handed_over: Reservations):
    handed_over.accept("r", P0, status_seq=5, known_seq=3)
    handed_over.settle(P0, 4)
    assert held(handed_over) == (1, 1)
    handed_over.settle(P0, 5)
    assert held(handed_over) == (0, 1), "the decode engine was not asked yet"


def test_a_status_may_overtake_the_acceptance(handed_over: Reservations):
    handed_over.settle(P0, 5)
    assert held(handed_over) == (1, 1)
    handed_over.accept("r", P0, status_seq=5, known_seq=5)
    assert held(handed_over) == (0, 1)


def test_an_acceptance_of_what_is_over_changes_nothing(handed_over: Reservations):
    assert handed_over.release("r") == {P0, D0}
    handed_over.accept("r", P0, 5, None)
    assert held(handed_over) == (0, 0)
    assert handed_over.release("r") == set()


def test_where_statuses_wait_the_next_one_counts_what_has_begun(handed_over: Reservations):
    handed_over.count_from_next("r", {P0: 7, D0: 2}.get)
    handed_over.settle(P0, 7)
    assert held(handed_over) == (1, 1)
    handed_over.settle(P0, 8)
    handed_over.settle(D0, 3)
    assert held(handed_over) == (0, 0)


def test_what_an_engine_said_itself_stands(handed_over: Reservations):
    handed_over.accept("r", P0, status_seq=10, known_seq=3)
    handed_over.count_from_next("r", {P0: 4}.get)
    handed_over.settle(P0, 5)
    assert held(handed_over) == (1, 1)


def test_of_an_engine_that_was_never_heard_no_status_is_the_next(handed_over: Reservations):
    handed_over.count_from_next("r", {}.get)
    handed_over.settle(P0, 100)
    assert held(handed_over) == (1, 1)


def test_an_engine_that_is_gone_holds_nothing_and_the_other_does(handed_over: Reservations):
    handed_over.drop(P0)
    assert held(handed_over) == (0, 1)
    handed_over.drop(P0)
    assert handed_over.release("r") == {D0}
