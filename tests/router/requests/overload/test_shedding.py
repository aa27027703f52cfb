from random import Random

import pytest

from router.requests.overload.shedding import (
    LEAST_BUSY_S,
    LEAST_WAITING,
    MAX_RETRY_AFTER_S,
    MIN_RETRY_AFTER_S,
    OPTIMISM,
    Shedding,
    overloaded,
)
from tests.router.cluster import D0, M0, P0, SERVICE, make_engine, make_request, make_view
from tests.seeds import each_seed

PACE = 1000.0  # tokens a second


def paced(num_waiting=LEAST_WAITING, seconds=LEAST_BUSY_S + 1.0):
    """1000 tokens a second left a queue in which so many waited, until the moment 0."""
    shedding, at = Shedding(), -seconds
    while at <= 0.0:
        shedding.dispatched(make_request(100), num_waiting, at)
        at += 0.1
    return shedding


def waiting(*deadlines, num_tokens=1000):
    return [make_request(num_tokens, deadline=deadline, id_=f"r{n}") for n, deadline in enumerate(deadlines)]


def names(requests):
    return {request.id for request in requests}


def test_those_that_cannot_all_make_it_are_told_and_as_many_as_possible_are_kept():
    requests = waiting(*[8.0] * 20)
    left_out = paced().hopeless(requests, 0.0)
    assert len(requests) - len(left_out) in (9, 10), "8 s of 1250 tokens"
    assert paced().hopeless(waiting(*[8.0] * 20, num_tokens=300), 0.0) == []


def test_the_longest_are_refused_first():
    short = waiting(*[8.0] * 20, num_tokens=300)
    long = make_request(5000, deadline=8.0, id_="long")
    assert names(paced().hopeless([*short, long], 0.0)) == {"long"}


def test_a_few_that_wait_are_no_overload():
    assert paced().hopeless(waiting(*[0.5] * (LEAST_WAITING - 1)), 0.0) == []


def test_a_pace_that_was_not_seen_refuses_nobody():
    requests = waiting(*[0.5] * 50)
    assert Shedding().hopeless(requests, 0.0) == []
    assert paced(num_waiting=LEAST_WAITING - 1).hopeless(requests, 0.0) == [], "it was not at work all the time"
    assert paced(seconds=LEAST_BUSY_S / 2).hopeless(requests, 0.0) == []


def test_the_pace_of_one_service_says_nothing_of_another():
    others = [make_request(1000, deadline=0.5, id_=f"o{n}", service="other") for n in range(50)]
    assert paced().hopeless(others, 0.0) == []


def test_an_old_pace_is_forgotten():
    shedding = paced()
    for tenth in range(1, 1200):
        shedding.dispatched(make_request(1000), LEAST_WAITING, tenth / 10)
    now = 120.0
    assert shedding.hopeless(waiting(*[now + 8.0] * 20), now) == [], "ten times as fast as it began"


@each_seed(range(20))
def test_what_is_kept_could_be_served_in_time(seed):
    dice = Random(seed)
    requests = [make_request(dice.randint(1, 4000), deadline=dice.uniform(0.1, 30.0), id_=f"r{n}") for n in range(60)]
    left_out = names(paced().hopeless(requests, 0.0))
    at, pace = 0.0, OPTIMISM * PACE * 1.05  # what was seen is not exactly so many
    for request in sorted(requests, key=lambda one: one.deadline):
        if request.id not in left_out:
            at += request.num_tokens / pace
            assert at <= request.deadline + 0.01
    assert left_out


@pytest.mark.parametrize(
    ("backlogs_s", "retry_after_s"),
    [((0.2, 0.4), MIN_RETRY_AFTER_S), ((7.0, 5.0), 5.0), ((500.0, 600.0), MAX_RETRY_AFTER_S)],
)
def test_a_refusal_hints_when_the_first_engine_that_prefills_is_free(
    backlogs_s: tuple[float, float], retry_after_s: float
):
    first, second = backlogs_s
    busy = make_engine(P0, prefill_remaining_s=first), make_engine(M0, prefill_remaining_s=second)
    view = make_view(*busy, make_engine(D0))
    assert overloaded(view, SERVICE, "full", 0.0).retry_after_s == retry_after_s
