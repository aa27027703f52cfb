from types import SimpleNamespace

import pytest

from bench.gateway.overload import Point, make_pool, served
from router.history.records import Outcome


def ended(arrived_s, outcome=Outcome.FINISHED, is_good=True, after_s=1.0):
    return SimpleNamespace(arrived_s=arrived_s, outcome=outcome, meets_slo=is_good, e2e_s=after_s)


def test_goodput_counts_what_met_its_promises_once_the_mesh_is_at_work():
    warming_up = [ended(at, is_good=False) for at in (0.0, 5.0, 9.9)]
    at_work = [ended(20.0), ended(30.0, is_good=False), ended(50.0), ended(100.0)]
    refused = [ended(40.0, Outcome.REJECTED, is_good=False, after_s=after) for after in (0.5, 2.0, 0.1, 0.2)]
    point = Point.of("tropical", 2.0, 8.0, [*warming_up, *at_work, *refused])
    assert (point.num_requests, point.num_admitted, point.num_good) == (8, 4, 3)
    assert point.goodput == 3.0
    assert point.refused_after_s == (0.5, 2.0)
    assert Point.of("tropical", 1.0, 1.0, [ended(1.0)]).refused_after_s is None


@pytest.mark.parametrize("policy", ["tropical", "elastic"])
def test_goodput_stays_near_its_peak_at_three_times_the_load(policy):
    sustained = 5.5  # requests a second; `python -m bench.gateway.overload` searches for it
    rates = (factor * sustained for factor in (1.0, 3.0))
    at_once, beyond = (Point.of(policy, rate / sustained, rate, served(policy, rate, 25.0, 1)) for rate in rates)
    assert beyond.goodput >= 0.9 * max(at_once.goodput, beyond.goodput)
    assert beyond.num_admitted < beyond.num_requests
    longest_promise_s = max(request.slo_ttft_s for request in make_pool())
    assert beyond.refused_after_s[1] <= longest_promise_s + 0.1
