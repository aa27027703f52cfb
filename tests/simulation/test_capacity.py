import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.capacity import Trial, crossing, find_between, find_capacity


def falling(capacity, promise=0.9):
    """Attainment that is kept up to a capacity and falls beyond it."""
    return lambda rate: 1.0 if rate <= capacity else max(0.0, promise - (rate - capacity) / capacity)


@given(st.floats(0.05, 50), st.floats(0.1, 10))
def test_it_finds_the_rate_where_the_promise_breaks(capacity, first_rate):
    found = find_capacity(falling(capacity), 0.9, first_rate, 0.02, most_runs=40)
    assert found.rate == pytest.approx(capacity, rel=0.03)
    assert [trial.rate for trial in found.trials] == sorted(trial.rate for trial in found.trials)


def test_few_runs_are_enough():
    assert len(find_capacity(falling(3.0), 0.9, 1.0, 0.05).trials) <= 9


def test_a_promise_that_is_never_kept_is_kept_at_no_rate():
    assert find_capacity(lambda rate: 0.5, 0.9, 1.0, 0.05).rate == 0.0


def test_between_two_rates_it_is_interpolated():
    attainment = {1.0: 1.0, 1.5: 0.8}
    assert find_capacity(attainment.__getitem__, 0.9, 1.0, 0.6).rate == pytest.approx(1.25)


@given(st.floats(0.1, 30), st.floats(1.2, 40))
def test_between_two_rates_no_other_ones_are_tried(lowest, factor):
    capacity, highest = lowest * factor**0.5, lowest * factor
    found = find_between(falling(capacity), 0.9, lowest, highest, 0.02)
    assert found.rate == pytest.approx(capacity, rel=0.03)
    assert all(lowest <= trial.rate <= highest for trial in found.trials)


def test_a_capacity_outside_of_the_two_rates_takes_few_runs():
    assert find_between(falling(1.0), 0.9, 2.0, 9.0, 0.02).words(0.9) == "<2.00"
    assert find_between(falling(10.0), 0.9, 2.0, 9.0, 0.02).words(0.9) == ">9.00"
    assert len(find_between(falling(1.0), 0.9, 2.0, 9.0, 0.02).trials) == 1


@pytest.mark.parametrize(
    ("attainments", "words"),
    [((0.95, 0.85), "1.50"), ((0.95, 0.9), ">2.00"), ((0.89, 0.8), "<1.00"), ((0.8, 0.95), "<1.00")],
)
def test_words_say_when_the_capacity_is_beyond_what_was_tried(attainments, words):
    trials = [Trial(rate, attainment) for rate, attainment in zip((1.0, 2.0), attainments, strict=True)]
    assert crossing(trials, 0.9).words(0.9) == words
