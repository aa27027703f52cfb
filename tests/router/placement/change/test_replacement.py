"""Whether a plan is worth the change, by more than chance."""

from itertools import count
from random import Random

import pytest

from router.placement.change.replacement import RISK, Verdict, judge, risk_of
from router.placement.observe.interval import Threshold
from router.placement.search.chance import num_samples
from router.placement.search.plan import Group, Plan
from router.placement.search.score import Score, ServiceScore
from tests.router.placement.worlds import traffic
from tests.seeds import is_night

ASKED = traffic({"a": 1.0})
THRESHOLD = Threshold(load_s=0.0)
HERE, THERE = (Plan((Group(engine, "node", 0, 1, ("a",)),)) for engine in ("here", "there"))


class Attained:
    """What the wanted plan attains on one sample after the other, or attains with a latency; the present one has 0.8
    and 1 on each.
    """

    def __init__(self, attained):
        self._attained = iter(attained)
        self.num_asked = 0

    def __call__(self, asked):
        return self

    def exact(self, plans):
        self.num_asked += 1
        wanted = next(self._attained)
        return [score(0.8, 1.0), score(*wanted) if isinstance(wanted, tuple) else score(wanted, 1.0)]


def score(attainment, latency):
    return Score({"a": ServiceScore(100, 100 * (1 - attainment), 100.0 * latency)})


def judged(attained, risk=RISK, threshold=THRESHOLD, stays=1.0, num_others=0):
    """With the number of times that plans were scored. The last ones are other loads."""
    evaluators = Attained(attained)
    samples = (ASKED.drawn_anew(seed) for seed in range(num_samples(risk)))
    others = (ASKED.drawn_anew(-1 - seed) for seed in range(num_others))
    proposal = judge(HERE, THERE, ASKED, threshold, evaluators, samples, risk, others=others, stays=stays)
    return proposal.verdict, evaluators.num_asked


def test_a_gain_that_shows_on_all_samples_is_worth_a_change():
    assert judged([0.9] * 8) == (Verdict.REPLACE, 8)


@pytest.mark.parametrize("at", range(1, 7))
def test_samples_on_which_it_makes_little_difference_take_nothing_from_those_on_which_it_makes_much(at):
    """As where a service is near to what its engines can do: with a little less traffic any plan will do."""
    assert judged([0.9] * at + [0.79] + [0.9] * 7)[0] is Verdict.REPLACE
    assert judged([0.9] * at + [0.2] + [0.9] * 7)[0] is Verdict.BY_CHANCE


def test_after_too_many_losses_no_more_are_looked_at():
    assert judged([0.9] + [0.79] * 7) == (Verdict.BY_CHANCE, 4)


def test_a_gain_that_is_no_chance_and_small_is_not_worth_it():
    assert judged([0.9] + [0.81] * 7) == (Verdict.BY_CHANCE, 8)


@pytest.mark.parametrize(("stays", "verdict"), [(1.0, Verdict.REPLACE), (0.8, Verdict.REPLACE), (0.5, Verdict.PASSING)])
def test_what_is_gained_while_a_load_stays_must_pay_for_what_is_lost_after_it(stays, verdict):
    """A tenth is gained, and then as much is lost: at least two hundredths must be left."""
    assert judged([0.9] * 8 + [0.7] * 4, stays=stays, num_others=4) == (verdict, 12)


def test_other_loads_are_not_looked_at_where_a_gain_may_be_chance():
    assert judged([0.9] + [0.79] * 7, stays=0.5, num_others=4) == (Verdict.BY_CHANCE, 4)


def test_what_loading_costs_is_lost_on_every_sample():
    assert judged([0.9] * 8, threshold=Threshold(load_s=20.0))[0] is Verdict.NOT_WORTH
    assert judged([0.9] * 8, threshold=Threshold(load_s=7.0))[0] is Verdict.REPLACE
    assert judged([0.9] + [0.86] * 7, threshold=Threshold(load_s=7.0))[0] is Verdict.BY_CHANCE


def test_latency_counts_where_it_is_the_reason():
    evaluators = [(0.8, 0.5), *[(0.8, 0.6)] * 7]
    assert judged(evaluators)[0] is Verdict.REPLACE
    assert judged([(0.8, 0.5), *[(0.8, 0.9)] * 7])[0] is Verdict.BY_CHANCE
    assert judged([(0.8, 0.5), *[(0.8, 0.6), (0.8, 1.1)] * 4])[0] is Verdict.BY_CHANCE


def test_samples_are_not_looked_at_for_what_is_not_worth_it_anyway():
    assert judged([0.81]) == (Verdict.NOT_WORTH, 1)


def test_the_longer_it_is_the_same_the_more_must_show_and_all_risks_together_are_small():
    risks = [risk_of(interval) for interval in range(1, 5000)]
    assert risks == sorted(risks, reverse=True)
    assert 0.99 * RISK < sum(risks) < RISK
    assert num_samples(risks[0]) <= 8, "a shift is answered"
    assert num_samples(risks[19]) <= 16


def test_chance_changes_few_plans_however_long_it_is_the_same():
    """What a sample shows is drawn from what is no better, on average."""
    random, num_changed, num_runs = Random(1), 0, 300 if is_night() else 60
    for _ in range(num_runs):
        tosses = (random.gauss(0.8, 0.05) for _ in count())
        verdicts = [judged(tosses, risk_of(interval))[0] for interval in range(1, 21)]
        num_changed += Verdict.REPLACE in verdicts
    assert num_changed < num_runs * RISK
