from math import sqrt
from random import Random

import pytest

from router.placement.observe.traffic import Arrival, Moments, ServiceTraffic, Traffic


def test_recorded_requests_give_rate_and_moments():
    requests = [Arrival(2.0, 30, 1), Arrival(0.0, 10, 3)]
    found = ServiceTraffic.recorded(requests, 4.0)
    assert (found.rate, found.num_input, found.num_output) == (0.5, Moments(20.0, 10.0), Moments(2.0, 1.0))
    assert found.arrivals(4.0, Random(0)) == tuple(sorted(requests))


def test_nothing_recorded_is_no_traffic():
    assert ServiceTraffic.recorded([], 10.0) == ServiceTraffic(0.0, Moments(0, 0), Moments(0, 0))
    assert ServiceTraffic.recorded([], 10.0).arrivals(10.0, Random(0)) == ()


def test_drawn_requests_have_the_moments_that_were_asked_for():
    asked = ServiceTraffic(20.0, Moments(500.0, 300.0), Moments(80.0, 0.0))
    drawn = ServiceTraffic.recorded(asked.arrivals(1000.0, Random(3)), 1000.0)
    assert drawn.rate == pytest.approx(20.0, rel=0.03)
    assert drawn.num_input.mean == pytest.approx(500.0, rel=0.03)
    assert drawn.num_input.deviation == pytest.approx(300.0, rel=0.08)
    assert drawn.num_output == Moments(80.0, 0.0)


def test_a_sample_drawn_anew_is_another_one_of_the_same_kind():
    first = Traffic.recorded(
        {"a": ServiceTraffic(5.0, Moments(50, 20), Moments(9, 3)).arrivals(400.0, Random(1))}, 400.0
    )
    anew, other = first.drawn_anew(1), first.drawn_anew(2)
    assert anew == first.drawn_anew(1)
    assert anew.services["a"].requests != other.services["a"].requests
    assert anew.rate("a") == pytest.approx(first.rate("a"), rel=0.1)
    assert anew.rate("nobody") == 0.0


@pytest.mark.parametrize("span_s", [50.0, 5000.0])
def test_samples_have_rates_that_are_as_unsure_as_what_was_seen_is_short(span_s):
    """Of 5 requests a second the rate is known to 5 / sqrt(number seen); each sample adds its own noise to that."""
    seen = Traffic(span_s, {"a": ServiceTraffic(5.0, Moments(100, 50), Moments(10, 0))})
    sampled_s, samples = 200.0, 150
    drawn = [seen.drawn_unsure(sampled_s, seed).services["a"] for seed in range(samples)]
    rates, lengths = (
        Moments.of(values) for values in zip(*[(one.rate, one.num_input.mean) for one in drawn], strict=True)
    )
    assert rates.mean == pytest.approx(5.0, rel=0.02)
    assert rates.deviation == pytest.approx(sqrt(5.0 / span_s + 5.0 / sampled_s), rel=0.15)
    number, sampled = 5.0 * span_s, 5.0 * sampled_s
    assert lengths.mean == pytest.approx(100.0, rel=0.02)
    assert lengths.deviation == pytest.approx(50.0 * sqrt(1 / number + 1 / sampled), rel=0.15)
    assert all(one.num_output == Moments(10, 0) for one in drawn), "what never varied is known"


def test_samples_have_as_many_waiting_and_their_lengths_are_like_others():
    asked = ServiceTraffic(2.0, Moments(100, 30), Moments(10, 0))
    seen = Traffic(100.0, {"a": asked, "b": asked}).with_waiting({"a": 400})
    for sample in (seen.drawn_anew(1), seen.drawn_unsure(50.0, 1), seen.only(["a", "b"])):
        assert {name: one.num_waiting for name, one in sample.services.items()} == {"a": 400, "b": 0}
    waiting = seen.services["a"].waiting(Random(1))
    lengths = Moments.of([one.num_input for one in waiting])
    assert (len(waiting), {one.at_s for one in waiting}, {one.num_output for one in waiting}) == (400, {0.0}, {10})
    assert (lengths.mean, lengths.deviation) == (pytest.approx(100, rel=0.05), pytest.approx(30, rel=0.15))


def test_no_more_wait_in_a_sample_than_come():
    asked = ServiceTraffic(2.0, Moments(100, 30), Moments(10, 0))
    seen = Traffic(100.0, {"a": asked, "b": asked, "c": asked})
    long = seen.with_waiting({"a": 9000, "b": 1}).with_short_queues()
    assert {name: one.num_waiting for name, one in long.services.items()} == {"a": 600, "b": 1, "c": 0}
    short = seen.with_waiting({"a": 300, "b": 300})
    assert short.with_short_queues() == short
    assert seen.with_short_queues() == seen


def test_samples_are_the_same_for_a_seed_and_nobody_asks_for_what_nobody_asked_for():
    seen = Traffic(
        100.0, {"a": ServiceTraffic(1.0, Moments(9, 3), Moments(9, 3)), "b": ServiceTraffic.recorded([], 1.0)}
    )
    assert seen.drawn_unsure(50.0, "x") == seen.drawn_unsure(50.0, "x")
    assert seen.drawn_unsure(50.0, "x") != seen.drawn_unsure(50.0, "y")
    assert seen.drawn_unsure(50.0, "x").rate("b") == 0.0
