"""Decides at the end of a call whether its trace is kept: what broke a promise is, and a share of the rest."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from router.history.records import Outcome
from router.history.timeline import RequestTimeline
from router.traces.call_trace import EndedChoice

_LOW_BITS: Final = 0xFFFF_FFFF_FFFF_FFFF  # of a trace id say whether it is in the share, as in OpenTelemetry's SDK


class KeptFor(StrEnum):
    """Why a trace is exported."""

    FAILED = "failed"
    REJECTED = "rejected"
    LATE = "late"  # a promise was broken
    PARENT = "parent"  # the client's own trace is sampled
    SHARE = "share"


class TraceShare:
    """Says by their ids which traces are kept however they end, so that all who sample by one share choose the same."""

    def __init__(self, share: float) -> None:
        self.bound: Final = round(share * (_LOW_BITS + 1))  # of the low bits of those that are kept

    def has(self, trace_id: int) -> bool:
        """Say whether this one is kept."""
        return trace_id & _LOW_BITS < self.bound


def kept_for(choices: Iterable[EndedChoice], *, is_in_share: bool, has_parent: bool) -> KeptFor | None:
    """Return why the trace of a call with these choices is kept. None: it is not."""
    found: KeptFor | None = None
    for choice in choices:
        timeline = choice.timeline
        outcome = None if timeline.ended is None else timeline.ended.outcome
        if outcome is Outcome.FAILED:
            return KeptFor.FAILED
        if outcome is Outcome.REJECTED:
            found = KeptFor.REJECTED
        elif found is None and is_late(timeline):
            found = KeptFor.LATE
    if found is not None or not is_in_share:
        return found
    return KeptFor.PARENT if has_parent else KeptFor.SHARE


def is_late(timeline: RequestTimeline) -> bool:
    """Say whether its first token, or the pace of the others, broke a promise. Without a first token, it is late if it
    waited for longer than promised.
    """
    facts, ttft_s, tpot_s = timeline.facts, timeline.ttft_s, timeline.tpot_s
    if ttft_s is None:
        return timeline.ended is not None and timeline.ended.at_s > facts.slo_ttft_s
    return ttft_s > facts.slo_ttft_s or (tpot_s is not None and tpot_s > facts.slo_tpot_s)
