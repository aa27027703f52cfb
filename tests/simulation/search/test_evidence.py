from math import inf

import pytest

from router.history.records import Outcome, Record
from simulation.search.evidence import Keeping, SampleResult, is_better, judge, samples_for, weigh_records


def record(ttft_s, tpot_s=0.05, outcome=Outcome.FINISHED):
    return Record("r", 0.0, "s", 10, 10, 1.0, 0.1, outcome, ttft_s=ttft_s, tpot_s=tpot_s)


def samples(*attainments, num_requests=200):
    return [SampleResult(attainment, 0.5, 1.0, num_requests) for attainment in attainments]


def test_requests_must_be_enough_for_the_goal_however_samples_agree():
    """Who keeps 99 % keeps all of 40 requests in two samples of three, and so in six of six once in eleven times."""
    assert judge(samples(*[1.0] * 6, num_requests=40), 0.99, 0.02) is Keeping.OPEN
    assert judge(samples(*[1.0] * 24, num_requests=40), 0.99, 0.02) is Keeping.KEEPS
    assert judge(samples(*[1.0] * 6, num_requests=1), 0.9, 0.02) is Keeping.OPEN


def test_samples_are_enough_to_rule_chance_out():
    for risk in (0.2, 0.05, 0.05 / 3, 0.001):
        count = samples_for(risk)
        assert judge(samples(*[1.0] * count), 0.9, risk) is Keeping.KEEPS
        assert judge(samples(*[1.0] * (count - 1)), 0.9, risk) is Keeping.OPEN


def test_the_mean_is_told_from_the_goal_only_if_samples_agree():
    assert judge(samples(0.95, 0.96, 0.93, 0.94, 0.95, 0.97), 0.9, 0.02) is Keeping.KEEPS
    assert judge(samples(0.5, 0.6, 0.4, 0.8, 0.7, 0.89), 0.9, 0.02) is Keeping.BREAKS
    assert judge(samples(1.0, 0.5, 1.0, 1.0, 0.9, 1.0), 0.9, 0.02) is Keeping.OPEN


def test_the_same_samples_tell_which_is_better():
    assert is_better([0.95, 0.75, 0.99, 0.85, 0.9], [0.94, 0.74, 0.98, 0.84, 0.89], 0.05)
    assert not is_better([0.95, 0.75, 0.99, 0.85, 0.9], [0.96, 0.74, 0.98, 0.86, 0.89], 0.05)
    assert not is_better([1.0] * 6, [1.0] * 6, 0.05)


def test_use_is_that_of_the_request_at_the_goal():
    records = [record(0.1 * number) for number in range(1, 11)]
    result = weigh_records(records, 0.9, 2.0)
    assert result.use == pytest.approx(0.9)
    assert (result.attainment, result.cpu_s) == (1.0, 2.0)


def test_use_tells_more_of_tokens_if_they_are_later():
    assert weigh_records([record(0.1, 0.15)], 0.9, 0.0).use == pytest.approx(1.5)


def test_up_to_one_is_used_exactly_if_the_goal_was_kept():
    for num_late in range(11):
        records = [record(1.5)] * num_late + [record(0.9)] * (10 - num_late)
        result = weigh_records(records, 0.7, 0.0)
        assert (result.use <= 1) == (result.attainment >= 0.7 - 1e-9)


def test_who_was_not_answered_used_more_than_any_promise():
    assert weigh_records([record(None, None, Outcome.REJECTED)], 0.9, 0.0).use == inf
