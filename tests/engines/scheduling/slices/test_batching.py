"""The batcher finds the least time of all ways to batch."""

from functools import cache
from math import inf
from random import Random

import pytest

from engines.scheduling.slices.batching import form_batches
from engines.scheduling.slices.estimates import SliceEstimator
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.scheduling.slices.test_estimates import drawn_estimator
from tests.seeds import each_seed


def partitions(items):
    """Every way to put them into batches."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in partitions(rest):
        yield [[first], *partition]
        for index, group in enumerate(partition):
            yield [*partition[:index], [first, *group], *partition[index + 1 :]]


def fits(group, estimator, most):
    return len(group) <= min(estimator.most_requests(max(group)), most or len(group))


def least_s(lengths, estimator, most=None):
    serving_s = cache(estimator.serving_s)
    allowed = (p for p in partitions(lengths) if all(fits(group, estimator, most) for group in p))
    return min((sum(serving_s(len(group), max(group)) for group in p) for p in allowed), default=inf)


def check_batches(lengths, batches, estimator, most=None):
    members = [index for batch in batches for index in batch.members]
    assert sorted(members) == list(range(len(lengths)))
    for batch in batches:
        group = [lengths[index] for index in batch.members]
        assert fits(group, estimator, most)
        assert batch.serving_s == pytest.approx(estimator.serving_s(len(group), max(group)))


@each_seed(range(120))
def test_no_other_batches_take_less_time(seed):
    random, estimator = Random(seed), drawn_estimator(seed)
    scale = random.choice([20, 300, 3000])
    lengths = [random.randint(1, scale) for _ in range(random.randint(1, 7))]
    most = random.choice([None, 1, 2, 3])
    batches = form_batches(lengths, estimator, most)
    check_batches(lengths, batches, estimator, most)
    assert sum(batch.serving_s for batch in batches) == pytest.approx(least_s(lengths, estimator, most))


def textbook_s(lengths, estimator):
    """Algorithm 1 as it is printed."""
    ordered, totals = sorted(lengths), [0.0]
    for i in range(1, len(ordered) + 1):
        length = ordered[i - 1]
        totals.append(totals[i - 1] + estimator.serving_s(1, length))
        j = i - 1
        while j > 0 and i - j + 1 <= estimator.most_requests(length):
            totals[i] = min(totals[i], totals[j - 1] + estimator.serving_s(i - j + 1, length))
            j -= 1
    return totals[-1]


@each_seed(range(12))
def test_it_is_the_papers_algorithm_for_many(seed):
    random, estimator = Random(seed), drawn_estimator(seed)
    lengths = [min(1024, int(random.paretovariate(0.8) * 8)) for _ in range(90)]
    batches = form_batches(lengths, estimator)
    check_batches(lengths, batches, estimator)
    assert sum(batch.serving_s for batch in batches) == pytest.approx(textbook_s(lengths, estimator))


def test_a_long_prompt_is_not_padded_to_by_short_ones():
    """The paper's figure 11."""
    estimator = SliceEstimator(PrefillCost(0.02, 1e-4), DecodeCost(0.018, 1e-4, 5e-7), 60_000, 128)
    batches = form_batches([10] * 8 + [1024] + [10] * 7, estimator)
    assert [len(batch.members) for batch in batches] == [15, 1]
    assert batches[1].members == [8]


def test_nobody_waits():
    assert form_batches([], drawn_estimator(0)) == []
