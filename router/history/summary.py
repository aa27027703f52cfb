"""The record of a request that has ended, from its timeline."""

from router.history.records import Outcome, Record
from router.history.timeline import RequestTimeline


def record_of(timeline: RequestTimeline, origin_s: float = 0.0) -> Record:
    """Arrivals count from ``origin_s`` of the gateway's clock."""
    facts, ended, delivered = timeline.facts, timeline.ended, timeline.delivered
    assert ended is not None, f"{timeline.id} goes on"
    route = timeline.route
    has_finished = ended.outcome is Outcome.FINISHED
    return Record(
        id=facts.id,
        arrived_s=timeline.arrived_at - origin_s,
        service=facts.service,
        input_tokens=facts.num_prompt_tokens,
        output_tokens=delivered.num_tokens if has_finished else facts.max_tokens,
        slo_ttft_s=facts.slo_ttft_s,
        slo_tpot_s=facts.slo_tpot_s,
        outcome=ended.outcome,
        ttft_s=timeline.ttft_s,
        tpot_s=timeline.tpot_s,
        e2e_s=ended.at_s,
        queued_s=timeline.queued_s,
        cached_tokens=delivered.num_cached,
        prefill_engine=None if route is None else route.prefill_engine,
        decode_engine=None if route is None else route.decode_engine,
        rule=None if route is None else route.rule,
        predicted_ttft_s=None if route is None else route.predicted_ttft_s,
        attempts=0 if route is None else route.attempt + 1,
        reason=None if has_finished else ended.reason,
        priority=facts.priority,
        partial_tokens=0 if has_finished else delivered.num_tokens,
    )
