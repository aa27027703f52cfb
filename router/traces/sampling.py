"""Decides at the end of a call whether its trace is kept: what broke a promise is, and a share of the rest."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from router.history.records import Outcome
from router.history.timeline import RequestTimeline
from router.traces.call_trace import EndedCall
from router.traces.context import ParentContext

_LOW_BITS: Final = 0xFFFF_FFFF_FFFF_FFFF  # of a trace id say whether it is in the share, as in OpenTelemetry's SDK


class KeptFor(StrEnum):
    """Why a trace is exported."""

    FAILED = "failed"
    REJECTED = "rejected"
    LATE = "late"  # a promise was broken
    PARENT = "parent"  # the client's own trace is sampled
    SHARE = "share"


def is_in_share(trace_id: int, parent: ParentContext | None, share: float) -> bool:
    """Say whether a trace is kept however it ends: as its parent says, or else by its id, so that all who sample by the
    same share choose the same traces.
    """
    if parent is not None:
        return parent.is_sampled
    return trace_id & _LOW_BITS < round(share * (_LOW_BITS + 1))


def kept_for(call: EndedCall) -> KeptFor | None:
    """Return why a call's trace is kept. None: it is not."""
    timelines = [choice.timeline for choice in call.choices]
    outcomes = {timeline.ended.outcome for timeline in timelines if timeline.ended is not None}
    if Outcome.FAILED in outcomes:
        return KeptFor.FAILED
    if Outcome.REJECTED in outcomes:
        return KeptFor.REJECTED
    if not keep_promises(timelines):
        return KeptFor.LATE
    if not call.is_in_share:
        return None
    return KeptFor.SHARE if call.parent is None else KeptFor.PARENT


def keep_promises(timelines: Iterable[RequestTimeline]) -> bool:
    """Say whether all first tokens came in time, and the others at the pace that was promised."""
    return not any(_is_late(timeline) for timeline in timelines)


def _is_late(timeline: RequestTimeline) -> bool:
    """Without a first token, it is late if it waited for longer than promised."""
    facts, ttft_s, tpot_s = timeline.facts, timeline.ttft_s, timeline.tpot_s
    if ttft_s is None:
        return timeline.ended is not None and timeline.ended.at_s > facts.slo_ttft_s
    return ttft_s > facts.slo_ttft_s or (tpot_s is not None and tpot_s > facts.slo_tpot_s)
