"""Tells a request's timeline as spans: what it waited for, and which engine had it when.

Theory of operation. Exactly one span is open at a time. It is a `queue` in the gateway, then a `prefill` from the
dispatch to the first token, then a `transfer` if another engine decodes, then a `decode` on each engine that has it. A
`migration` is the pause between the last token of one engine and the first of the next, and is known when that token
comes: the two spans around it are cut then. What happens from an interruption until tokens go on is below a `recovery`.
All times are those at which the gateway heard of it; spans of which one end is no event of the timeline say that they
are inferred. Timelines forget their oldest events, so any event may come in any state.
"""

from collections.abc import Callable
from math import isfinite

from router.history.records import Outcome
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
from router.policies.policy import Dispatch
from router.traces.span import Attributes, Span, SpanEvent

READ, QUEUE, PREFILL, TRANSFER = "read", "queue", "prefill", "transfer"
DECODE, MIGRATION, RECOVERY = "decode", "migration", "recovery"
ENGINE = "meshserve.engine"
FROM = "meshserve.engine.from"
INFERRED = "meshserve.inferred"


def phases_of(timeline: RequestTimeline, parent_id: int, next_id: Callable[[], int]) -> list[Span]:
    """The spans of a request that has ended, below that of ``parent_id``. ``next_id`` gives each span its id."""
    phases = _Phases(timeline, parent_id, next_id)
    for event in timeline.events:
        phases.take(event)
    return phases.spans


class _Phases:
    def __init__(self, timeline: RequestTimeline, parent_id: int, next_id: Callable[[], int]) -> None:
        self.spans: list[Span] = []
        self._arrived_at = start_s = timeline.arrived_at
        self._parent_id = parent_id
        self._next_id = next_id
        self._recovery: Span | None = None
        self._moved_from: Span | None = None  # the span before the open one, until tokens of the new owner come
        self._sliced: Span | None = None  # the decode whose slice ended before the open prefill was dispatched
        self._dispatch: Dispatch | None = None
        if timeline.facts.admitted_s > 0:
            self._begin(READ, start_s)
            start_s += timeline.facts.admitted_s
        self._begin(QUEUE, start_s)

    @property
    def _open(self) -> Span:
        return self.spans[-1]

    def take(self, event: Event) -> None:
        at_s = self._arrived_at + event.at_s
        match event:
            case Decided():
                self._decided(event, at_s)
            case EngineAccepted(engine=engine):
                self._note("accepted", at_s, {ENGINE: engine})
            case EngineRefused(engine=engine, code=code, reason=reason):
                self._lost(f"{engine} refused it: {code}: {reason}", at_s)
            case Interrupted(reason=reason):
                self._lost(reason, at_s)
            case OwnerChanged(engine=engine):
                self._moved(engine, at_s)
            case FirstToken(engine=engine):
                self._came(engine, at_s)
            case TokensResumed(engine=engine, since_s=since_s):
                self._resumed(engine, self._arrived_at + since_s, at_s)
            case Ended():
                self._ended(event, at_s)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _begin(self, name: str, at_s: float, attributes: Attributes | None = None, links: tuple[int, ...] = ()) -> Span:
        """The next span, which ends the open one."""
        if self.spans:
            self._end(at_s)
        parent_id = self._parent_id if self._recovery is None else self._recovery.span_id
        self.spans.append(Span(name, self._next_id(), parent_id, at_s, at_s, attributes or {}, links=links))
        return self._open

    def _end(self, at_s: float) -> None:
        self._open.end_s = max(at_s, self._open.start_s)

    def _note(self, name: str, at_s: float, attributes: Attributes) -> None:
        self._open.events.append(SpanEvent(name, at_s, attributes))

    def _decided(self, event: Decided, at_s: float) -> None:
        decision = event.decision
        if not isinstance(decision, Dispatch):
            self._note(type(decision).__name__.lower(), at_s, {"reason": decision.reason})
            return
        self._sliced = self._open if self._open.name == DECODE else None
        self._dispatch = decision
        attributes: Attributes = {
            ENGINE: decision.prefill_engine,
            "meshserve.engine.decode": decision.decode_engine,
            "meshserve.policy": event.policy,
            "meshserve.rule": decision.rule,
            "meshserve.attempt": event.attempt,
        }
        if isfinite(decision.predicted_ttft_s):
            attributes["meshserve.predicted_ttft_s"] = decision.predicted_ttft_s
        self._begin(PREFILL, at_s, attributes)

    def _lost(self, reason: str, at_s: float) -> None:
        """It waits again. Once it had begun, its client waits, too."""
        lost = self._open
        lost.error = reason
        self._moved_from = self._sliced = None
        self._end_recovery(at_s)
        if lost.name in (DECODE, TRANSFER) or self._has_tokens:
            parent_id, self._recovery = self._parent_id, None
            self._end(at_s)
            recovery = Span(RECOVERY, self._next_id(), parent_id, at_s, at_s, {"reason": reason}, links=(lost.span_id,))
            self.spans.append(recovery)
            self._recovery = recovery
        self._begin(QUEUE, at_s)

    @property
    def _has_tokens(self) -> bool:
        return any(span.name in (DECODE, TRANSFER) for span in self.spans)

    def _end_recovery(self, at_s: float) -> None:
        if self._recovery is not None:
            self._recovery.end_s = at_s
            self._recovery = None

    def _moved(self, engine: str, at_s: float) -> None:
        before = self._open
        if before.name not in (DECODE, TRANSFER):
            self._note("moved", at_s, {ENGINE: engine})
            return
        self._begin(DECODE, at_s, {ENGINE: engine}, (before.span_id,))
        self._moved_from = before

    def _came(self, engine: str, at_s: float) -> None:
        """The first tokens of a dispatch: either they go on from there, or the engine hands the request over."""
        before, dispatch = self._open, self._dispatch
        self._end(at_s)
        self._end_recovery(at_s)
        if dispatch is not None and dispatch.prefill_engine == engine != dispatch.decode_engine:
            between: Attributes = {FROM: engine, ENGINE: dispatch.decode_engine, INFERRED: True}
            self._begin(TRANSFER, at_s, between, (before.span_id,))
        else:
            self._begin(DECODE, at_s, {ENGINE: engine}, (before.span_id,))

    def _resumed(self, engine: str, since_s: float, at_s: float) -> None:
        if self._moved_from is not None:
            self._cut_move(self._moved_from, since_s, at_s)
        elif self._open.name == PREFILL:
            if self._sliced is not None:
                self._cut_slice(self._sliced, since_s)
            self._came(engine, at_s)

    def _cut_move(self, before: Span, since_s: float, at_s: float) -> None:
        """Tokens of the new owner came: before that nobody decoded."""
        decode, self._moved_from = self._open, None
        decode.start_s = at_s
        if before.name == TRANSFER:
            before.end_s = at_s
            before.attributes["meshserve.pause_s"] = at_s - since_s
            return
        before.end_s = max(before.start_s, since_s)
        pause: Attributes = {FROM: before.attributes[ENGINE], ENGINE: decode.attributes[ENGINE], INFERRED: True}
        migration = Span(MIGRATION, self._next_id(), decode.parent_id, before.end_s, at_s, pause)
        migration.links = (before.span_id,)
        self.spans.insert(-1, migration)

    def _cut_slice(self, decode: Span, since_s: float) -> None:
        """A slice ended with its last token; since then it waited for the dispatch of the next one."""
        self._sliced = None
        decode.end_s = max(decode.start_s, min(since_s, self._open.start_s))
        waited = Span(QUEUE, self._next_id(), self._open.parent_id, decode.end_s, self._open.start_s, {INFERRED: True})
        waited.links = (decode.span_id,)
        self.spans.insert(-1, waited)

    def _ended(self, event: Ended, at_s: float) -> None:
        if event.outcome in (Outcome.FAILED, Outcome.REJECTED) and not self._open.error:
            self._open.error = event.reason
        self._end(at_s)
        self._end_recovery(at_s)
