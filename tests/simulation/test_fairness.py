"""One tenant floods the mesh, another one asks as if it were alone."""

from dataclasses import replace
from random import Random

import pytest

from router.history.records import Outcome, Record
from simulation.loads.arrival_processes import Arrivals, Process, synthesize
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import pair, run

REQUEST = TraceRequest(0.0, 1000, 30)  # a prefill of 0.18 s
SPAN_S = 12.0
HONEST, FLOOD = 0.8, 20.0  # a second; five is what the mesh can do


def load(rate: float, tenant: str, seed: int) -> list[TraceRequest]:
    requests = synthesize([REQUEST], Arrivals(rate, Process.POISSON), SPAN_S, Random(seed))
    return [replace(request, tenant=tenant) for request in requests]


def outcomes(policy: str, *loads: list[TraceRequest]) -> list[list[Record]]:
    """By load."""
    trace = sorted((request for load in loads for request in load), key=lambda request: request.at_s)
    ended = {record.id: record for record in run(pair(policy), trace)}
    places = {id(request): number for number, request in enumerate(trace)}
    return [[ended[f"r{places[id(request)]}"] for request in load] for load in loads]


def worst_ttft_s(records: list[Record]) -> float:
    return max(record.ttft_s for record in records if record.ttft_s is not None)


@pytest.mark.parametrize("policy", ["tropical", "round_robin", "least_loaded"])
def test_a_flood_delays_nobody_else_by_more_than_their_share(policy):
    """What engines have begun is not interrupted: a few prefills are before an honest one, and no queue of a flood."""
    honest = load(HONEST, "honest", 1)
    [alone] = outcomes(policy, honest)
    beside, flood = outcomes(policy, honest, load(FLOOD, "flood", 2))
    assert all(record.outcome is Outcome.FINISHED for record in beside)
    assert worst_ttft_s(beside) < worst_ttft_s(alone) + 1.0
    assert any(record.outcome is not Outcome.FINISHED for record in flood)


def test_without_tenants_the_flood_would_win():
    honest = [replace(request, tenant="") for request in load(HONEST, "", 1)]
    beside, _ = outcomes("round_robin", honest, load(FLOOD, "", 2))
    assert any(record.outcome is not Outcome.FINISHED or record.ttft_s > 2.0 for record in beside)


def test_what_one_leaves_the_other_gets():
    """Sharing costs no throughput: as many finish as of one tenant with the same load."""
    honest, flood = load(HONEST, "honest", 1), load(FLOOD, "flood", 2)
    apart = outcomes("tropical", honest, flood)
    together = outcomes(
        "tropical", [replace(one, tenant="") for one in honest], [replace(one, tenant="") for one in flood]
    )

    def finished(records: list[list[Record]]) -> int:
        return sum(record.outcome is Outcome.FINISHED for load in records for record in load)

    assert finished(apart) > 0.9 * finished(together)
