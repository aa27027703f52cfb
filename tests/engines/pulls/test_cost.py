"""What pulls are predicted to take: as they took, until that is long ago."""

import pytest

from engines.pulls.cost import BYTES_PER_S, START_S, VALID_S, PullCost

GB = 10**9


def test_pulls_that_run_come_first():
    cost = PullCost()
    assert cost.seconds(GB, 0, 0.0) == pytest.approx(START_S + GB / BYTES_PER_S)
    assert cost.seconds(GB, GB, 0.0) == pytest.approx(START_S + 2 * GB / BYTES_PER_S)


def test_what_a_pull_took_is_learnt_and_forgotten():
    cost = PullCost()
    cost.learn(GB, GB, 2.0 + START_S, 0.0)
    assert cost.seconds(GB, 0, 1.0) == pytest.approx(1.0 + START_S)
    cost.learn(GB, 0, 5.0 + START_S, 1.0)
    assert cost.seconds(GB, 0, 2.0) == pytest.approx(2.0 + START_S)
    assert cost.seconds(GB, 0, 1.0 + VALID_S) == PullCost().seconds(GB, 0, 0.0)


def test_a_pull_that_was_stopped_says_that_it_takes_longer_and_never_that_it_is_fast():
    cost = PullCost()
    cost.learn_at_least(GB, 0, 3.0 + START_S, 0.0)
    assert cost.seconds(GB, 0, 0.0) == pytest.approx(3.0 + START_S)
    cost.learn_at_least(GB, 0, 1.0, 0.0)
    assert cost.seconds(GB, 0, 0.0) == pytest.approx(3.0 + START_S)
