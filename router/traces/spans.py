"""Makes the spans of one API call that has ended: its server span, and below it the phases of each choice.

Names of attributes are those of OpenTelemetry's semantic conventions where they have one (``gen_ai.*``), else
``meshserve.*``.
"""

from collections.abc import Callable, Sequence

from router.history.records import Outcome
from router.history.timeline import RequestTimeline
from router.traces.call_trace import EndedCall
from router.traces.phases import phases_of
from router.traces.sampling import KeptFor, is_late
from router.traces.span import Attributes, Span, SpanKind

PROVIDER = "meshserve"
MAX_MODEL = 256  # characters of a model's name, which the client gave


def spans_of(call: EndedCall, kept_for: KeptFor, next_id: Callable[[], int]) -> list[Span]:
    """The server span first. Several choices have a span each between it and their phases."""
    server = _server_span(call, kept_for)
    spans = [server]
    for index, choice in enumerate(call.choices):
        above = server
        if len(call.choices) > 1:
            above = _choice_span(index, choice.timeline, server.span_id, next_id())
            spans.append(above)
        spans += phases_of(choice.timeline, above.span_id, next_id)
    return spans


def _server_span(call: EndedCall, kept_for: KeptFor) -> Span:
    timelines = [choice.timeline for choice in call.choices]
    parent = call.parent
    return Span(
        f"{call.facts.operation} {_model(call)}",
        call.span_id,
        0 if parent is None else parent.span_id,
        min(timeline.arrived_at for timeline in timelines),
        max(_ended_at(timeline) for timeline in timelines),
        {
            **_asked(call),
            **_answered(call, timelines),
            "meshserve.promise.kept": not _error_of(timelines) and not any(map(is_late, timelines)),
            "meshserve.kept_for": str(kept_for),
        },
        error=_error_of(timelines),
        kind=SpanKind.SERVER,
        state="" if parent is None else parent.state,
        is_parent_remote=parent is not None,
    )


def _model(call: EndedCall) -> str:
    return call.facts.model[:MAX_MODEL]


def _asked(call: EndedCall) -> Attributes:
    call_facts, first = call.facts, call.choices[0]
    facts, sampling = first.timeline.facts, first.sampling
    asked: Attributes = {
        "gen_ai.operation.name": call_facts.operation,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": _model(call),
        "gen_ai.request.stream": call_facts.is_stream,
        "gen_ai.request.max_tokens": facts.max_tokens,
        "gen_ai.request.temperature": float(sampling.temperature),
        "gen_ai.request.top_p": float(sampling.top_p),
        "meshserve.request.id": call_facts.request_id,
        "meshserve.priority": facts.priority,
        "meshserve.promise.ttft_s": facts.slo_ttft_s,
        "meshserve.promise.tpot_s": facts.slo_tpot_s,
    }
    if call_facts.num_choices != 1:
        asked["gen_ai.request.choice.count"] = call_facts.num_choices
    return asked


def _answered(call: EndedCall, timelines: Sequence[RequestTimeline]) -> Attributes:
    """Each prompt counts once, however many choices it has."""
    firsts = timelines[:: call.facts.num_choices]
    answered: Attributes = {
        "gen_ai.response.model": timelines[0].facts.service,
        "gen_ai.response.id": call.facts.response_id,
        "gen_ai.usage.input_tokens": sum(timeline.facts.num_prompt_tokens for timeline in firsts),
        "gen_ai.usage.output_tokens": sum(timeline.delivered.num_tokens for timeline in timelines),
        "gen_ai.response.finish_reasons": tuple(map(_finish, timelines)),
    }
    if num_cached := sum(timeline.delivered.num_cached for timeline in firsts):
        answered["gen_ai.usage.cache_read.input_tokens"] = num_cached
    ttfts = [timeline.ttft_s for timeline in timelines if timeline.ttft_s is not None]
    if ttfts:
        answered["gen_ai.response.time_to_first_chunk"] = min(ttfts)
    tpots = [timeline.tpot_s for timeline in timelines if timeline.tpot_s is not None]
    if tpots:
        answered["meshserve.tpot_s"] = max(tpots)
    if error := _error_type(timelines):
        answered["error.type"] = error
    return answered


def _finish(timeline: RequestTimeline) -> str:
    """How a choice finished, in OpenAI's words; else its outcome."""
    if timeline.ended is None:
        return "unknown"
    return timeline.reason if timeline.ended.outcome is Outcome.FINISHED else str(timeline.ended.outcome)


def _broken(timelines: Sequence[RequestTimeline]) -> list[RequestTimeline]:
    bad = (Outcome.FAILED, Outcome.REJECTED)
    return [timeline for timeline in timelines if timeline.ended is not None and timeline.ended.outcome in bad]


def _error_of(timelines: Sequence[RequestTimeline]) -> str:
    return next((timeline.reason for timeline in _broken(timelines)), "")


def _error_type(timelines: Sequence[RequestTimeline]) -> str:
    return next((_finish(timeline) for timeline in _broken(timelines)), "")


def _choice_span(index: int, timeline: RequestTimeline, parent_id: int, span_id: int) -> Span:
    attributes: Attributes = {
        "gen_ai.usage.output_tokens": timeline.delivered.num_tokens,
        "gen_ai.response.finish_reasons": (_finish(timeline),),
    }
    ends = timeline.arrived_at, _ended_at(timeline)
    return Span(f"choice {index}", span_id, parent_id, *ends, attributes, error=_error_of([timeline]))


def _ended_at(timeline: RequestTimeline) -> float:
    return timeline.arrived_at + (0.0 if timeline.ended is None else timeline.ended.at_s)
