import pytest

from bench.live.agreement import Latency
from bench.papers.tropical.live.runs import Load, Run, Seen, attainments, same_placements, trials
from simulation.loads.trace_request import TraceRequest

REQUEST = TraceRequest(0.0, 100, 10, slo_ttft_s=1.0, slo_tpot_s=0.1)
IN_TIME, LATE, SLOW, OF_ONE_TOKEN = Latency(1.0, 0.1, 2), Latency(1.1, 0.1, 2), Latency(1, 0.2, 3), Latency(1, None, 1)
HERE, THERE = ("rule", "first", "second"), ("rule", "second", "second")


def make_run(rate, latencies, placements=(), simulated_placements=()):
    """One request for each latency; None: refused."""
    seen = Seen({i: one for i, one in enumerate(latencies) if one is not None}, dict(enumerate(placements)))
    simulated = Seen({}, dict(enumerate(simulated_placements)))
    return Run("policy", "policy", rate, [REQUEST] * len(latencies), seen, simulated, Load(2, 1.0, 0.0, 0.0, 0.0))


def measured(run):
    return run.measured


def test_attainment_counts_both_slos_of_all_requests():
    kept = attainments([make_run(1.0, [IN_TIME, LATE, SLOW, None, OF_ONE_TOKEN])], measured)
    assert (kept.ttft, kept.tpot, kept.both) == pytest.approx((0.6, 0.6, 0.4))


def test_requests_of_one_rate_count_alike_whatever_run_they_are_of():
    runs = [make_run(2.0, [LATE]), make_run(1.0, [IN_TIME]), make_run(2.0, [IN_TIME] * 3)]
    assert [(trial.rate, trial.attainment) for trial in trials(runs, measured)] == [(1.0, 1.0), (2.0, 0.75)]


def test_a_request_that_is_refused_on_both_sides_was_predicted():
    run = make_run(1.0, [IN_TIME, IN_TIME, None, None], [HERE, HERE], [HERE, THERE])
    assert same_placements([run]) == 0.75
