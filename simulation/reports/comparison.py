"""Sums up the runs of a simulation for programs, beside what happened when their requests were recorded."""

from collections.abc import Sequence

import msgspec

from mesh.topology.schema import Topology
from mesh.wire.status import PrefillCost
from router.history.records import Outcome, Record
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.reports.summary import Summary, summarize

RECORDED = "as recorded"
ANY_COST = PrefillCost(0.0, 0.0, 0.0)


class Comparison(msgspec.Struct, frozen=True):
    """The runs of a simulation. Promises are seconds, None where those of requests differ; ``attainment`` is promised,
    too.

    ``recorded``: None if the requests do not say what became of them, or come at another rate.
    """

    ttft_s: float | None
    tpot_s: float | None
    attainment: float
    recorded: Summary | None
    runs: list[Summary]


def encode(comparison: Comparison) -> str:
    return msgspec.json.encode(comparison).decode() + "\n"


def recorded(topology: Topology, requests: Sequence[TraceRequest], rule: SloRule) -> Summary | None:
    """Sum up what became of requests, but for those that their clients cancelled. Promises are those of the rule.

    None: nothing is known of some, or what they are promised depends on an engine.
    """
    if rule.ttft_factor is not None or any(request.answer is None for request in requests):
        return None
    records = [_record(topology, request, rule) for request in requests]
    kept = [record for record in records if record.outcome is not Outcome.CANCELLED]
    return summarize(RECORDED, kept, None) if kept else None


def _record(topology: Topology, request: TraceRequest, rule: SloRule) -> Record:
    answer, service = request.answer, topology.service(request.service or topology.services[0].name)
    assert answer is not None
    slo = rule.slo(service, request, ANY_COST)
    return Record(
        id="",
        arrived_s=request.at_s,
        service=service.name,
        input_tokens=request.num_input,
        output_tokens=request.num_output,
        slo_ttft_s=slo.ttft_s,
        slo_tpot_s=slo.tpot_s,
        outcome=answer.outcome,
        ttft_s=answer.ttft_s,
        tpot_s=answer.tpot_s,
        e2e_s=answer.e2e_s,
        queued_s=answer.queued_s,
    )
