"""Whether a plan is worth the change, by more than chance."""

from itertools import count
from random import Random

import pytest

from router.placement.interval import Threshold
from router.placement.plan import Group, Plan
from router.placement.replacement import RISK, Verdict, judge, num_samples
from router.placement.score import Score, ServiceScore
from tests.router.placement.worlds import traffic

ASKED = traffic({"a": 1.0})
HERE, THERE = (Plan((Group(engine, "node", 0, 1, ("a",)),)) for engine in ("here", "there"))


class Attained:
    """What the wanted plan attains on one sample after the other; the present one attains 0.8 on each."""

    def __init__(self, attained):
        self._attained = iter(attained)
        self.num_asked = 0

    def __call__(self, asked):
        return self

    def exact(self, plans):
        self.num_asked += 1
        return [score(0.8), score(next(self._attained))]


def score(attainment):
    return Score({"a": ServiceScore(100, 100 * (1 - attainment), 100.0)})


def judged(attained, number):
    evaluators = Attained(attained)
    samples = (ASKED.drawn_anew(seed) for seed in range(number))
    return judge(HERE, THERE, ASKED, Threshold(load_s=0.0), evaluators, samples).verdict, evaluators.num_asked


def test_a_gain_that_shows_on_all_samples_is_worth_a_change():
    assert judged([0.9] * 6, 5) == (Verdict.REPLACE, 6)


@pytest.mark.parametrize("at", range(1, 6))
def test_a_gain_that_one_sample_does_not_show_is_chance_and_no_more_are_looked_at(at):
    assert judged([0.9] * at + [0.81] + [0.9] * 5, 5) == (Verdict.BY_CHANCE, at + 1)


def test_samples_are_not_looked_at_for_what_is_not_worth_it_anyway():
    assert judged([0.81], 5) == (Verdict.NOT_WORTH, 1)


def test_the_longer_it_is_the_same_the_more_must_show_and_all_risks_together_are_small():
    numbers = [num_samples(interval) for interval in range(1, 5000)]
    assert numbers == sorted(numbers)
    assert sum(2.0**-number for number in numbers) < RISK
    assert numbers[0] <= 6, "a shift is answered"
    assert numbers[19] <= 14


def test_chance_changes_few_plans_however_long_it_is_the_same():
    """What a sample shows is the toss of a coin: a plan that is worth it on the first sample is not so on most."""
    random, num_changed = Random(1), 0
    for _ in range(1000):
        tosses = (random.choice((0.7, 0.9)) for _ in count())
        verdicts = [judged(tosses, num_samples(interval))[0] for interval in range(1, 21)]
        num_changed += Verdict.REPLACE in verdicts
    assert 0 < num_changed < 1000 * RISK
