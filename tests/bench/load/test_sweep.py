"""The search for a capacity, against made-up curves whose capacity is known."""

from math import exp, log
from random import Random

import pytest

from bench.load.results.confidence import Seen, Verdict
from bench.load.sweep import Goal, Sweep, Trial
from mesh.errors import UserError


def curve(rate: float, middle: float, width: float) -> float:
    """Attainment falls from 1 to 0 around ``middle``."""
    return 1 / (1 + exp((rate - middle) / width))


def capacity(middle: float, width: float, goal: float) -> float:
    return middle + width * log(1 / goal - 1)


@pytest.mark.parametrize("seed", range(12))
def test_it_finds_the_capacity_of_a_noisy_system(seed: int):
    random = Random(seed)
    middle = random.uniform(5, 60)
    width = middle / 15

    def measure(rate: float, number: int) -> Trial:
        return Trial(sum(random.random() < curve(rate, middle, width) for _ in range(400)), 400)

    sweep = Sweep(Goal(0.9, precision=0.05, most_trials=4), measure)
    sweep.run(first_rate=random.uniform(0.5, 100))
    assert sweep.found is not None
    assert sweep.found.rate == pytest.approx(capacity(middle, width, 0.9), rel=0.12)


def test_a_rate_that_is_not_clear_gets_more_requests():
    def measure(rate: float, number: int) -> Trial:
        return Trial(91, 100) if rate == 4.0 else Trial(50, 100)

    sweep = Sweep(Goal(0.9, most_trials=3), measure)
    sweep.run(first_rate=4.0)
    assert sweep.seen[4.0].num_requests == 300
    assert {seen.num_requests for rate, seen in sweep.seen.items() if rate != 4.0} == {100}


def test_what_is_told_says_how_sure_it_is():
    sweep = Sweep(Goal(0.9, most_rates=2), lambda rate, number: Trial(200 if rate < 5 else 10, 200))
    sweep.run(first_rate=4.0)
    assert "at least 4, below 6" in sweep.words()
    points = sweep.json()["points"]
    assert [(point["rate"], point["verdict"], point["requests"]) for point in points] == [
        (4.0, "kept", 200),
        (6.0, "broken", 200),
    ]
    assert sweep.line()[0][:2] == (4.0, 1.0)


def test_a_system_that_never_breaks_is_told_as_such():
    sweep = Sweep(Goal(0.9, most_rates=3), lambda rate, number: Trial(200, 200))
    sweep.run(first_rate=4.0)
    assert sweep.words().startswith(">9.00")
    assert sweep.json()["is_beyond"]


def test_an_interrupted_sweep_tells_what_it_has():
    def measure(rate: float, number: int) -> Trial:
        if number == 2:
            raise KeyboardInterrupt
        return Trial(200, 200)

    sweep = Sweep(Goal(0.9), measure)
    with pytest.raises(KeyboardInterrupt):
        sweep.run(first_rate=4.0)
    assert [point["rate"] for point in sweep.json()["points"]] == [4.0, 6.0]
    assert sweep.words() == "interrupted"


def test_nothing_measured_is_an_error():
    with pytest.raises(UserError, match="nothing was measured"):
        Sweep(Goal(0.9), lambda rate, number: Trial(0, 0)).run(1.0)


@pytest.mark.parametrize(
    ("num_good", "num_requests", "low", "high"),
    [(90, 100, 0.8256, 0.9448), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (500, 1000, 0.4691, 0.5309)],
)
def test_intervals_are_wilsons(num_good: int, num_requests: int, low: float, high: float):
    assert Seen(1.0, num_good, num_requests).interval(0.95) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("share", [0.7, 0.9, 0.97])
def test_an_interval_holds_the_share_as_often_as_it_says(share: float):
    random = Random(1)
    holds = 0
    for _ in range(1500):
        low, high = Seen(1.0, sum(random.random() < share for _ in range(150)), 150).interval(0.95)
        holds += low <= share <= high
    assert holds / 1500 == pytest.approx(0.95, abs=0.025)


def test_verdicts_need_enough_requests():
    assert Seen(1.0, 10, 10).verdict(0.9, 0.95) is Verdict.OPEN
    assert Seen(1.0, 100, 100).verdict(0.9, 0.95) is Verdict.KEPT
    assert Seen(1.0, 80, 100).verdict(0.9, 0.95) is Verdict.BROKEN
    assert Seen(1.0).verdict(0.9, 0.95) is Verdict.OPEN
