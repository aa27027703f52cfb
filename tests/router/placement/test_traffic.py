from random import Random

import pytest

from router.placement.traffic import Arrival, Moments, ServiceTraffic, Traffic


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
