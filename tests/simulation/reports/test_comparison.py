"""What happened when requests were recorded."""

from dataclasses import replace
from pathlib import Path

import pytest

from mesh.topology.schema import ServiceSpec, Slo, Topology
from router.history.records import Outcome
from simulation.loads.trace_request import RecordedAnswer, TraceRequest
from simulation.loads.workload import SloRule
from simulation.reports.comparison import recorded

TOPOLOGY = Topology("test", Path(), (ServiceSpec("s", "m", Slo(1.0, 0.1)),), (), ())


def request(at_s, outcome=Outcome.FINISHED, ttft_s=0.5, **fields):
    answer = RecordedAnswer(outcome, ttft_s, 0.05, 2.0, 0.1)
    return TraceRequest(at_s, 10, 20, service="s", answer=answer, **fields)


def test_what_was_kept_is_counted():
    summary = recorded(TOPOLOGY, [request(0.0), request(1.0, ttft_s=1.5), request(2.0, Outcome.REJECTED)], SloRule())
    assert (summary.policy, summary.num_requests, summary.num_rejected) == ("as recorded", 3, 1)
    assert summary.attainment == pytest.approx(1 / 3)


def test_what_clients_cancelled_does_not_count():
    summary = recorded(TOPOLOGY, [request(0.0), request(1.0, Outcome.CANCELLED)], SloRule())
    assert (summary.num_requests, summary.attainment) == (1, 1.0)
    assert recorded(TOPOLOGY, [request(1.0, Outcome.CANCELLED)], SloRule()) is None


def test_promises_are_those_that_runs_count():
    strict = [request(0.0, slo_ttft_s=0.2)]
    assert recorded(TOPOLOGY, strict, SloRule()).attainment == 0.0
    assert recorded(TOPOLOGY, strict, SloRule(keeps_traced=False)).attainment == 1.0


def test_a_trace_that_does_not_say_has_nothing_to_compare():
    assert recorded(TOPOLOGY, [request(0.0), replace(request(1.0), answer=None)], SloRule()) is None
    assert recorded(TOPOLOGY, [request(0.0)], SloRule(ttft_factor=3.0)) is None
