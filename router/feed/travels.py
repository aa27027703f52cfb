"""Reads what happened to a gateway's requests since somebody looked last, at most so much of it.

Timelines are read and not hooked into: while nobody looks, nothing is spent.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from msgspec.structs import replace

from router.feed.frames import RequestEvent, RequestsFrame
from router.history.records import Outcome
from router.history.summary import record_of
from router.history.timeline import (
    Decided,
    Ended,
    EngineAccepted,
    EngineRefused,
    Event,
    FirstToken,
    Interrupted,
    OwnerChanged,
    RequestTimeline,
    TokensResumed,
)
from router.history.timelines import Timelines
from router.policies.policy import Dispatch

MOST_EVENTS: Final = 256  # of one frame
MANY_EVENTS: Final = 64  # of one frame: beyond it, fewer requests are told of
CALM_LOOKS: Final = 20  # with few events, after which more requests are told of again


class Travels:
    """Reads timelines of one gateway. ``wall``: turns a time of the gateway's clock into seconds since the epoch."""

    def __init__(self, timelines: Timelines, wall: Callable[[float], float]) -> None:
        self._timelines = timelines
        self._wall = wall
        self._num_told: dict[int, int] = {}  # events of each request in flight, by the number of its arrival
        self._num_ended = timelines.num_ended
        self._one_in = 1
        self._num_calm = 0

    def __repr__(self) -> str:
        return f"<Travels one in {self._one_in}, {len(self._num_told)} in flight>"

    def look(self, now: float) -> RequestsFrame | None:
        """What is new; None: nothing."""
        ended = self._newly_ended()
        events = [event for timeline in (*ended, *self._timelines.open) for event in self._news(timeline)]
        for timeline in ended:
            self._num_told.pop(timeline.number, None)
        self._set_grain(len(events))
        return self._frame(events, now) if events else None

    def in_flight(self, now: float) -> RequestsFrame:
        """What became so far of the requests in flight, for somebody who has heard nothing yet."""
        newest = islice(filter(self._tells_of, reversed(self._timelines.open)), MANY_EVENTS)
        return self._frame([event for timeline in newest for event in _read(timeline, None, self._wall)], now)

    def _frame(self, events: list[RequestEvent], now: float) -> RequestsFrame:
        events.sort(key=lambda event: event.at)
        left_out = max(0, len(events) - MOST_EVENTS)
        return RequestsFrame(self._wall(now), events[left_out:], self._one_in, left_out)

    def _tells_of(self, timeline: RequestTimeline) -> bool:
        return timeline.number % self._one_in == 0

    def _newly_ended(self) -> list[RequestTimeline]:
        num_new = self._timelines.num_ended - self._num_ended
        self._num_ended += num_new
        return self._timelines.last_ended(num_new)

    def _news(self, timeline: RequestTimeline) -> Iterator[RequestEvent]:
        num_told = self._num_told.get(timeline.number)
        if num_told == timeline.num_events or not self._tells_of(timeline):
            return iter(())
        self._num_told[timeline.number] = timeline.num_events
        return _read(timeline, num_told, self._wall)

    def _set_grain(self, num_events: int) -> None:
        if num_events > MANY_EVENTS:
            self._one_in, self._num_calm = self._one_in * 2, 0
        elif num_events > MANY_EVENTS // 4 or self._one_in == 1:
            self._num_calm = 0
        else:
            self._num_calm += 1
            if self._num_calm >= CALM_LOOKS:
                self._one_in, self._num_calm = self._one_in // 2, 0


def _read(timeline: RequestTimeline, num_told: int | None, wall: Callable[[float], float]) -> Iterator[RequestEvent]:
    """Events after the first ``num_told``, less those that the timeline has forgotten. None: not even the arrival."""
    facts = timeline.facts
    plain = RequestEvent(facts.id, "arrived", wall(timeline.arrived_at), facts.service, facts.tenant)
    if num_told is None:
        yield replace(plain, prompt_tokens=facts.num_prompt_tokens)
    num_old = len(timeline.events) - (timeline.num_events - (num_told or 0))
    for event in islice(timeline.events, max(0, num_old), None):
        if not isinstance(event, EngineAccepted | TokensResumed):
            yield _told(replace(plain, at=wall(timeline.arrived_at + event.at_s)), event, timeline)


def _told(plain: RequestEvent, event: Event, timeline: RequestTimeline) -> RequestEvent:
    match event:
        case Decided():
            return _decided(plain, event)
        case EngineRefused():
            return replace(plain, what="refused", engine=event.engine, reason=event.reason)
        case Interrupted():
            return replace(plain, what="interrupted", reason=event.reason, tokens=event.num_tokens)
        case OwnerChanged() | EngineAccepted() | TokensResumed():
            return replace(plain, what="moved", engine=event.engine)
        case FirstToken():
            return replace(
                plain,
                what="first_token",
                engine=event.engine,
                ttft_s=event.at_s,
                predicted_s=event.predicted_s,
                took_s=event.since_dispatch_s,
            )
        case Ended():
            return _ended(plain, event, timeline)


def _decided(plain: RequestEvent, decided: Decided) -> RequestEvent:
    way = decided.decision
    if not isinstance(way, Dispatch):
        return replace(plain, what="waits", reason=way.reason)
    return replace(
        plain,
        what="dispatched",
        engine=way.prefill_engine,
        decode=way.decode_engine,
        reason=way.rule,
        predicted_s=way.predicted_ttft_s,
    )


def _ended(plain: RequestEvent, ended: Ended, timeline: RequestTimeline) -> RequestEvent:
    return replace(
        plain,
        what="ended",
        outcome=str(ended.outcome),
        reason=ended.reason,
        tokens=ended.num_tokens,
        ttft_s=timeline.ttft_s,
        tpot_s=ended.tpot_s,
        kept=None if ended.outcome is Outcome.CANCELLED or timeline.facts.is_filler else record_of(timeline).meets_slo,
    )
