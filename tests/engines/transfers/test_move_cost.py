"""What a migration is expected to cost, from those that there were."""

import pytest

from engines.transfers.move_cost import FIRST_STOP_S, MoveCosts


def test_longer_requests_take_longer_and_stop_as_long():
    costs = MoveCosts()
    short, long = costs.predict(100), costs.predict(1000)
    assert long.takes_s > short.takes_s
    assert long.stops_s == short.stops_s == FIRST_STOP_S


def test_the_first_migration_replaces_what_was_assumed():
    costs = MoveCosts()
    costs.observe(200, took_s=1.0, stopped_s=0.004)
    assert costs.predict(400).stops_s == pytest.approx(0.004)
    assert costs.predict(400).takes_s == pytest.approx(2.0 + 0.004)


def test_later_ones_count_more():
    costs = MoveCosts()
    costs.observe(100, took_s=1.0, stopped_s=0.1)
    for _ in range(20):
        costs.observe(100, took_s=0.1, stopped_s=0.01)
    assert costs.predict(100).takes_s == pytest.approx(0.11, rel=0.2)
