"""The randomization test against its definition, and against coins."""

from itertools import product
from random import Random

import pytest

from router.placement.search.chance import chance, most_losses, num_samples
from tests.seeds import each_seed

RISKS = (0.5, 0.05, 0.03, 0.0076, 0.0001)


@each_seed(range(20))
def test_it_is_the_share_of_all_signs_that_sum_up_to_as_much(seed):
    random = Random(seed)
    gains = [random.choice((0.0, 0.1, random.gauss(0.1, 1.0))) for _ in range(random.randint(1, 9))]
    sums = [sum(map(float.__mul__, signs, gains)) for signs in product((1.0, -1.0), repeat=len(gains))]
    assert chance(gains) == sum(one >= sum(gains) - 1e-9 for one in sums) / len(sums)


@pytest.mark.parametrize("risk", RISKS)
def test_so_many_samples_allow_for_so_many_small_losses(risk):
    number, losses = num_samples(risk), most_losses(risk)
    assert losses >= 2
    gains = [1.0 + index for index in range(number)]
    assert chance(gains) <= risk
    for lost in range(1, number):
        smallest = [-1e-6 if index < lost else gain for index, gain in enumerate(gains)]
        assert (chance(smallest) <= risk) == (lost <= losses)


def test_a_large_loss_is_evidence_where_small_ones_are_not():
    assert chance([0.5] * 7 + [-0.01]) == 2 / 256
    assert chance([0.5] * 7 + [-3.0]) > 0.3


@pytest.mark.parametrize("risk", RISKS[:3])
def test_what_is_no_better_passes_as_often_as_it_may(risk):
    random, number = Random(1), num_samples(risk)
    passed = sum(chance([random.gauss(0.0, random.random()) for _ in range(number)]) <= risk for _ in range(4000))
    assert 0.3 * risk < passed / 4000 < 1.2 * risk


def test_a_long_row_of_samples_takes_no_long_time():
    """2^34 signs."""
    assert chance([1.0] * 34) == 2.0**-34
