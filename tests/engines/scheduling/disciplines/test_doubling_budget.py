"""Doubling budgets: what is charged, when a request sinks, and what profiles change."""

import random

import pytest

from tests.engines.scheduling.disciplines.serving import Job, Known, doubling, request, serve
from tests.seeds import each_seed

A, B = {"a": Known(1.0, 0.5)}, {"a": Known(1.0, 0.5), "b": Known(4.0)}


def test_a_budget_is_mean_and_deviation_and_is_used_up_by_the_steps_that_a_request_takes_part_in():
    rules, one = doubling(A), request("one", "a")
    rules.came(one)
    assert rules.rank(0.0)(one)[2] == pytest.approx(1.5)
    rules.ran("a", [one], 1.0)
    assert rules.rank(1.0)(one)[2] == pytest.approx(0.5)


def test_priority_is_what_is_left_of_the_budget_times_the_mean_of_the_service():
    rules, long = doubling(B), request("long", "b")
    rules.came(long)
    assert rules.rank(0.0)(long)[2] == pytest.approx(16.0)


def test_a_budget_that_is_used_up_is_followed_by_one_twice_as_large():
    rules, one = doubling(A), request("one", "a")
    rules.came(one)
    left = []
    for _ in range(21):
        rules.ran("a", [one], 0.5)
        left.append(rules.rank(0.0)(one)[2])
    first, second, third = [1.0, 0.5], [3.0 - 0.5 * n for n in range(6)], [6.0 - 0.5 * n for n in range(12)]
    assert left == pytest.approx([*first, *second, *third, 12.0])


def test_one_that_is_longer_than_its_service_sinks_behind_those_that_keep_to_the_profile():
    rules, long, fresh = doubling(A), request("long", "a"), request("fresh", "a")
    rules.came(long)
    rules.ran("a", [long], 1.4)
    rules.came(fresh)
    assert min((long, fresh), key=rules.rank(2.0)) is long
    rules.ran("a", [long], 0.2)
    assert min((long, fresh), key=rules.rank(2.0)) is fresh


@each_seed(range(20))
def test_how_its_steps_are_cut_does_not_matter(seed: int):
    draw = random.Random(seed)
    rules, at_once, bit_by_bit = doubling(A), request("at-once", "a"), request("bit-by-bit", "a")
    rules.came(at_once)
    rules.came(bit_by_bit)
    used = [draw.randint(1, 40) / 8 for _ in range(20)]
    for elapsed in used:
        rules.ran("a", [bit_by_bit], elapsed)
    rules.ran("a", [at_once], sum(used))
    assert rules.rank(0.0)(at_once)[2] == rules.rank(0.0)(bit_by_bit)[2]
    rules.check_invariants([at_once, bit_by_bit])


@each_seed(range(20))
def test_requests_of_one_service_that_ran_equally_long_keep_their_order_whatever_the_profile_becomes(seed: int):
    draw = random.Random(seed)
    profiles = {"a": Known(1.0, 0.5)}
    rules, requests = doubling(profiles), [request(f"{index}", "a") for index in range(12)]
    for one in requests:
        profiles["a"] = Known(draw.uniform(0.1, 9.0), draw.uniform(0.0, 3.0))
        rules.came(one)
    assert sorted(requests, key=rules.rank(0.0)) == requests
    rules.ran("a", requests[6:], 2.0)
    profiles["a"] = Known(draw.uniform(0.1, 9.0), draw.uniform(0.0, 3.0))
    ranked = sorted(requests, key=rules.rank(0.0))
    assert [one for one in ranked if one in requests[:6]] == requests[:6]
    assert [one for one in ranked if one in requests[6:]] == requests[6:]


def test_a_service_with_more_requests_in_its_batch_goes_first_unless_phases_are_strict():
    profiles = {"few": Known(2.0), "many": Known(3.0)}
    for is_strict, first in ((True, "few"), (False, "many")):
        rules = doubling(profiles, is_strict=is_strict)
        for name, service in (("f", "few"), ("m1", "many"), ("m2", "many"), ("m3", "many")):
            rules.came(request(name, service))
        assert next(rules.turns(0.0)).service == first


def test_higher_priority_ranks_first_whatever_its_budget():
    rules, long, short = doubling(B), request("long", "b", priority=1), request("short", "a")
    rules.came(short)
    rules.came(long)
    assert next(rules.turns(0.0)).service == "b"
    assert min((long, short), key=rules.rank(0.0)) is long


STREAM = [Job("a", 2 * index, 2) for index in range(200)]  # as much as there is time for


@pytest.mark.parametrize("threshold", [10, 40, 100])
def test_nobody_waits_much_longer_than_the_threshold_under_a_stream_of_shorter_ones(threshold: int):
    profiles = {"a": Known(2.0), "b": Known(8.0)}
    jobs = [Job("b", 1, 8), *STREAM]
    done = serve(doubling(profiles, float(threshold)), jobs)
    assert threshold < done[0] - jobs[0].at - jobs[0].work <= threshold + 1
    assert max(end - job.at for job, end in zip(jobs[1:], done[1:], strict=True)) <= 2 + 8 + threshold


def test_without_a_threshold_it_would_wait_for_as_long_as_they_come():
    done = serve(doubling({"a": Known(2.0), "b": Known(8.0)}), [Job("b", 1, 8), *STREAM])
    assert done[0] == 400 + 8


def test_of_those_that_starve_the_one_that_has_waited_longest_goes_first():
    rules = doubling(B, 10.0)
    early, late, ran = request("early", "b", 0.0), request("late", "a", 2.0), request("ran", "b", 0.0)
    for one in (late, early, ran):
        rules.came(one)
    rules.ran("b", [ran], 5.0)
    assert sorted((late, early, ran), key=rules.rank(12.5)) == [early, late, ran]
    assert [turn.service for turn in rules.turns(12.5)] == ["b", "a"]
    assert next(rules.turns(10.5)).service == "b"
    assert next(rules.turns(9.5)).service == "a"
