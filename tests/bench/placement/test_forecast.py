"""Forecasts beside what comes, where queues stand."""

from bench.placement.forecast import forecasts, mean_error


def test_a_forecast_that_knows_who_waits_is_nearer_to_what_comes():
    made = [one for seed in range(2) for one in forecasts(1.2, seed, [60.0, 180.0])]
    assert all(one.num_waiting > 5 for one in made)
    empty, queued = (mean_error(made, which) for which in ("empty", "queued"))
    assert queued.latency < 0.6 * empty.latency
    assert {one.empty for one in made if one.seed == 0} == {made[0].empty}, "that one knows no time"
