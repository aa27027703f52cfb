from random import Random

import pytest

from router.placement.observe.interval import ReplacementInterval, Threshold
from router.placement.search.score import Score, ServiceScore


def achieved(interval, estimate, latency):
    interval.estimate = estimate
    return interval.achieved(latency)


def test_a_wrong_estimate_shortens_and_a_right_one_lengthens():
    interval = ReplacementInterval(100.0, 10.0, 1000.0)
    assert achieved(interval, 2.0, 2.19) == pytest.approx(110.0)
    assert achieved(interval, 2.0, 2.21) == pytest.approx(99.0)
    assert achieved(interval, 2.0, 1.79) == pytest.approx(89.1)
    assert achieved(interval, 2.0, 1.81) == pytest.approx(98.01)
    assert achieved(interval, None, 50.0) == pytest.approx(98.01)


def test_it_keeps_to_its_bounds():
    interval, random = ReplacementInterval(60.0, 30.0, 120.0), Random(1)
    seen = [achieved(interval, 1.0, random.uniform(0.5, 1.5)) for _ in range(500)]
    assert min(seen) == 30.0
    for _ in range(50):
        achieved(interval, 1.0, 1.0)
    assert interval.seconds == 120.0


@pytest.mark.parametrize(("initial", "least", "most", "beta"), [(5, 10, 20, 0.1), (15, 10, 20, 0.0), (15, 0, 20, 0.1)])
def test_what_cannot_be_meant_is_refused(initial, least, most, beta):
    with pytest.raises(ValueError, match="between"):
        ReplacementInterval(initial, least, most, beta)


def score(attainment, latency=1.0, num=1000):
    return Score({"a": ServiceScore(num, num * (1 - attainment), latency * num)})


@pytest.mark.parametrize(
    ("present", "wanted", "loaded_rate", "is_worth"),
    [
        (score(0.80), score(0.90), 0.0, True),
        (score(0.80), score(0.81), 0.0, False),  # noise
        (score(0.80), score(0.90), 100.0, False),  # a hundred late requests to save a hundred
        (score(0.99, 4.0), score(0.99, 2.0), 0.0, True),  # twice as fast
        (score(0.99, 2.2), score(0.99, 2.0), 0.0, False),
        (score(0.99, 4.0), score(0.98, 2.0), 0.0, False),  # faster, but less is in time
        (score(0.99, 4.0), score(0.99, 2.0), 20.0, False),
        (score(0.0, 0.0, num=0), score(1.0, 0.0, num=0), 0.0, False),  # nobody asked for anything
    ],
)
def test_a_plan_changes_only_for_more_than_it_costs(present, wanted, loaded_rate, is_worth):
    assert Threshold().is_worth(present, wanted, loaded_rate) is is_worth
