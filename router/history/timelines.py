"""The timelines of one gateway: of all requests in flight, and of the last ones that ended.

Readers are told of arrivals, of tokens and of ends as they happen, so that nothing is measured a second time.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from mesh.wire.requests import FinishReason, RequestSpec
from router.generation import RequestFailed, RouterError, TokenBatch
from router.history.records import Outcome
from router.history.timeline import Decided, RequestFacts, RequestTimeline, Seen
from router.history.trace import RequestTrace
from router.policies.policy import Decision

KEPT_REQUESTS = 4096  # that ended
KEPT_ENGINES = 16_384  # in all views kept, up to 4 KB each; older views keep the chosen engines only


@dataclass(frozen=True, slots=True)
class TimelineReaders:
    """Who is told what. ``delivered`` gets the number of tokens and the seconds since those before, None at first."""

    arrived: tuple[Callable[[RequestSpec], None], ...] = ()
    delivered: tuple[Callable[[RequestTimeline, int, float | None], None], ...] = ()
    ended: tuple[Callable[[RequestTimeline, RequestSpec], None], ...] = ()


class Timelines:
    """Every request begins here once and ends here once."""

    def __init__(
        self,
        readers: TimelineReaders = TimelineReaders(),
        kept_requests: int = KEPT_REQUESTS,
        kept_engines: int = KEPT_ENGINES,
    ) -> None:
        self._readers = readers
        self.apart_tokens: Mapping[str, int] = {}  # by service: ends reasoning where promises do not count that
        self._open: dict[str, tuple[RequestTimeline, RequestSpec]] = {}
        self._ended: OrderedDict[int, RequestTimeline] = OrderedDict()  # by number, in the order of their ends
        self._kept_requests = kept_requests
        self._kept_engines = kept_engines
        self._decided: deque[tuple[RequestTimeline, Decided]] = deque()  # with complete views
        self._num_engines = 0  # in those
        self._num_arrived = 0
        self.num_ended = 0

    def __repr__(self) -> str:
        return f"<Timelines {len(self._open)} in flight, {len(self._ended)} ended>"

    def __len__(self) -> int:
        return len(self._open) + len(self._ended)

    # --- reading ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[RequestTimeline]:
        """Iterate in the order of their arrival."""
        timelines = (*self.open, *self._ended.values())
        return iter(sorted(timelines, key=lambda timeline: timeline.number))

    @property
    def open(self) -> list[RequestTimeline]:
        """Return those of the requests that have not ended."""
        return [timeline for timeline, _ in self._open.values()]

    def last_ended(self, count: int) -> list[RequestTimeline]:
        """Return the last ones to end that are remembered, in the order of their ends."""
        return list(islice(reversed(self._ended.values()), count))[::-1]

    def recent(self, count: int) -> list[RequestTimeline]:
        """The last ones to arrive, newest first."""
        return list(islice(reversed(list(self)), count))

    def find(self, is_meant: Callable[[str], bool]) -> list[RequestTimeline]:
        """Return those whose id is meant, newest first."""
        return [timeline for timeline in reversed(list(self)) if is_meant(timeline.id)]

    def of(self, request: str) -> RequestTimeline | None:
        """The last one with this id."""
        found = self._open.get(request)
        return found[0] if found else next(iter(self.find(request.__eq__)), None)

    @property
    def num_forgotten(self) -> int:
        return self._num_arrived - len(self)

    @property
    def remembers_from(self) -> float | None:
        """The time since which everything that ended is remembered; None: of all that ever ended."""
        if not self.num_forgotten or not self._ended:
            return None
        oldest = next(iter(self._ended.values()))
        return oldest.arrived_at + (oldest.ended.at_s if oldest.ended else 0.0)

    # --- writing ------------------------------------------------------------------------------------------------------

    def arrived(
        self, spec: RequestSpec, now: float, tenant: str = "", trace: RequestTrace | None = None
    ) -> RequestTimeline:
        """A new request of ``tenant``, ``spec.age_s`` old. Raise `KeyError` if one of its id is in flight. ``trace``:
        of its call.
        """
        if spec.id in self._open:
            raise KeyError(f"request {spec.id} arrived twice")
        self._num_arrived += 1
        timeline = RequestTimeline(RequestFacts.of(spec, tenant), now - spec.age_s, self._num_arrived)
        timeline.apart_token = self.apart_tokens.get(spec.service)
        self._open[spec.id] = timeline, spec
        if trace is not None:
            timeline.trace = trace
            trace.arrived()
        for tell in self._readers.arrived:
            tell(spec)
        return timeline

    def decided(self, timeline: RequestTimeline, attempt: int, policy: str, decision: Decision, seen: Seen) -> None:
        """A policy decided about it, for this attempt."""
        event = timeline.decide(attempt, policy, decision, seen)
        self._decided.append((timeline, event))
        self._num_engines += _weight(event)
        while self._num_engines > self._kept_engines and len(self._decided) > 1:
            self._trim_oldest()

    def _trim_oldest(self) -> None:
        _, oldest = self._decided.popleft()
        self._num_engines -= _weight(oldest)
        oldest.seen.trim(oldest.decision)

    def delivered(self, timeline: RequestTimeline, batch: TokenBatch, engine: str, now: float) -> None:
        """Tokens of ``engine`` go to the client."""
        gap_s = timeline.deliver(batch, engine, now)
        for tell in self._readers.delivered:
            tell(timeline, len(batch.tokens), gap_s)

    def finished(self, timeline: RequestTimeline, finish: FinishReason, now: float) -> None:
        self.left(timeline, Outcome.FINISHED, str(finish), now)

    def failed(self, timeline: RequestTimeline, error: RouterError, now: float) -> None:
        outcome = Outcome.FAILED if isinstance(error, RequestFailed) else Outcome.REJECTED
        self.left(timeline, outcome, str(error), now)

    def left(self, timeline: RequestTimeline, outcome: Outcome, reason: str, now: float) -> None:
        """End the timeline of a request that is over. Raise `KeyError` if it was before."""
        _, spec = self._open.pop(timeline.id)
        timeline.end(outcome, reason, now)
        self.num_ended += 1
        self._ended[timeline.number] = timeline
        if len(self._ended) > self._kept_requests:
            self._ended.popitem(last=False)
            while self._decided and self._is_forgotten(self._decided[0][0]):
                self._num_engines -= _weight(self._decided.popleft()[1])
        for tell in self._readers.ended:
            tell(timeline, spec)

    def _is_forgotten(self, timeline: RequestTimeline) -> bool:
        return timeline.ended is not None and timeline.number not in self._ended


def _weight(decided: Decided) -> int:
    """A view without engines counts, too, or any number of them would be kept."""
    return max(1, decided.seen.num_engines)
