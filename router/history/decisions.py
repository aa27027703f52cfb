"""What happened to recent requests, and why: decisions with what they saw, and what came of them.

Kept by request: all that are in flight, and the last ones that ended. Nothing is worked out here. What a policy saw is
kept as a reference to its immutable view; `router.history.explain` reads the numbers from it when somebody asks.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from mesh.wire.requests import FinishReason, RefusalCode, RequestSpec
from router.generation import RequestFailed, RouterError
from router.history.records import Outcome
from router.policies.policy import Decision, Dispatch
from router.view.cluster_view import ClusterView
from router.view.engine_view import RequestView

KEPT_REQUESTS = 4096  # that ended
KEPT_EVENTS = 64  # of a request, the last ones
KEPT_ENGINES = 16_384  # in all views kept, up to 4 KB each; older views keep the chosen engines only


@dataclass(slots=True)
class Seen:
    """What a policy saw of a request and of the engines at ``now``, less the ``avoided`` and the ``broken`` ones.

    Broken are those whose circuit breakers let nothing through.
    """

    now: float
    request: RequestView
    view: ClusterView
    avoided: Collection[str]
    broken: Collection[str] = ()
    num_engines: int = 0

    def __post_init__(self) -> None:
        self.num_engines = len(self.view.engines)

    def trim(self, decision: Decision) -> None:
        """Keep the chosen engines only."""
        chosen = (decision.prefill_engine, decision.decode_engine) if isinstance(decision, Dispatch) else ()
        engines = self.view.engines
        self.view = ClusterView({id_: engines[id_] for id_ in chosen if id_ in engines})


@dataclass(frozen=True, slots=True)
class Decided:
    """``at_s`` counts from the request's arrival, here and in all events; ``attempt``: the dispatch decided about."""

    at_s: float
    attempt: int
    policy: str
    decision: Decision
    seen: Seen


class EngineAccepted(msgspec.Struct, frozen=True, tag="accepted"):
    at_s: float
    engine: str


class EngineRefused(msgspec.Struct, frozen=True, tag="refused"):
    at_s: float
    engine: str
    code: RefusalCode
    reason: str


class Interrupted(msgspec.Struct, frozen=True, tag="interrupted"):
    """Its owner could not go on; it waits again with the tokens so far."""

    at_s: float
    reason: str
    num_tokens: int


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    """Its tokens come from this engine from now on."""

    at_s: float
    engine: str


class EngineHolds(msgspec.Struct, frozen=True, tag="holds"):
    """The last time that its engine was asked. ``num_ahead``: as in `mesh.wire.requests.Holding`."""

    at_s: float
    engine: str
    num_ahead: int | None


class FirstToken(msgspec.Struct, frozen=True, tag="first_token"):
    """``predicted_s``: of ``since_dispatch_s``, by the last dispatch."""

    at_s: float
    engine: str
    since_dispatch_s: float
    predicted_s: float


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """``reason``: how it finished, else why it did not. ``tpot_s``: None with less than two tokens."""

    at_s: float
    outcome: Outcome
    reason: str
    num_tokens: int
    tpot_s: float | None


Event = Decided | EngineAccepted | EngineRefused | Interrupted | Moved | FirstToken | Ended


@dataclass(frozen=True, slots=True)
class Sent:
    at_s: float
    predicted_ttft_s: float  # from then on


@dataclass(slots=True, eq=False)
class Story:
    """One request and what happened to it, oldest first."""

    id: str
    service: str
    num_prompt_tokens: int
    max_tokens: int
    priority: int
    slo_ttft_s: float
    slo_tpot_s: float
    arrived_at: float  # on the gateway's clock
    admitted_s: float  # from then: when it had been read and tokenised
    number: int  # counts arrivals
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    num_events: int = 0  # forgotten ones included
    sent: Sent | None = None  # the last time
    holds: EngineHolds | None = None
    first_token: FirstToken | None = None
    ended: Ended | None = None

    @classmethod
    def of(cls, spec: RequestSpec, arrived_at: float, number: int) -> "Story":
        return cls(
            spec.id,
            spec.service,
            len(spec.prompt),
            spec.sampling.max_tokens,
            spec.priority,
            spec.slo_ttft_s,
            spec.slo_tpot_s,
            arrived_at,
            spec.age_s,
            number,
        )

    def add(self, event: Event) -> None:
        self.events.append(event)
        self.num_events += 1

    @property
    def decisions(self) -> list[Decided]:
        return [event for event in self.events if isinstance(event, Decided)]


class DecisionLog:
    """The stories of the requests in flight, and of the last ones that ended."""

    def __init__(self, kept_requests: int = KEPT_REQUESTS, kept_engines: int = KEPT_ENGINES) -> None:
        self._open: dict[str, Story] = {}
        self._ended: OrderedDict[int, Story] = OrderedDict()  # by number, in the order of their ends
        self._kept_requests = kept_requests
        self._kept_engines = kept_engines
        self._decided: deque[tuple[Story, Decided]] = deque()  # with complete views
        self._num_engines = 0  # in those
        self._num_arrived = 0

    def __repr__(self) -> str:
        return f"<DecisionLog {len(self._open)} in flight, {len(self._ended)} ended>"

    def __len__(self) -> int:
        return len(self._open) + len(self._ended)

    # --- reading ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Story]:
        """In the order of their arrival."""
        return iter(sorted((*self._open.values(), *self._ended.values()), key=lambda story: story.number))

    def recent(self, count: int) -> list[Story]:
        """The last ones to arrive, newest first."""
        return list(islice(reversed(list(self)), count))

    def find(self, is_meant: Callable[[str], bool]) -> list[Story]:
        """Those whose id is meant, newest first."""
        return [story for story in reversed(list(self)) if is_meant(story.id)]

    def of(self, request: str) -> Story | None:
        """The last one with this id."""
        return self._open.get(request) or next(iter(self.find(request.__eq__)), None)

    @property
    def num_forgotten(self) -> int:
        return self._num_arrived - len(self)

    @property
    def remembers_from(self) -> float | None:
        """Of what ended since then, everything is remembered; None: of all that ever ended."""
        if not self.num_forgotten or not self._ended:
            return None
        oldest = next(iter(self._ended.values()))
        return oldest.arrived_at + (oldest.ended.at_s if oldest.ended else 0.0)

    # --- writing ------------------------------------------------------------------------------------------------------

    def arrived(self, spec: RequestSpec, arrived_at: float) -> None:
        self._num_arrived += 1
        self._open[spec.id] = Story.of(spec, arrived_at, self._num_arrived)

    def decided(self, attempt: int, policy: str, decision: Decision, seen: Seen) -> None:
        if (story := self._open.get(seen.request.id)) is None:
            return
        event = Decided(seen.now - story.arrived_at, attempt, policy, decision, seen)
        story.add(event)
        if isinstance(decision, Dispatch):
            story.sent = Sent(event.at_s, decision.predicted_ttft_s)
        self._decided.append((story, event))
        self._num_engines += _weight(event)
        while self._num_engines > self._kept_engines and len(self._decided) > 1:
            self._trim_oldest()

    def _trim_oldest(self) -> None:
        _, oldest = self._decided.popleft()
        self._num_engines -= _weight(oldest)
        oldest.seen.trim(oldest.decision)

    def accepted(self, request: str, engine: str, now: float) -> None:
        if story := self._open.get(request):
            story.add(EngineAccepted(now - story.arrived_at, engine))

    def refused(self, request: str, engine: str, code: RefusalCode, reason: str, now: float) -> None:
        if story := self._open.get(request):
            story.add(EngineRefused(now - story.arrived_at, engine, code, reason))

    def interrupted(self, request: str, reason: str, num_tokens: int, now: float) -> None:
        if story := self._open.get(request):
            story.add(Interrupted(now - story.arrived_at, reason, num_tokens))

    def moved(self, request: str, engine: str, now: float) -> None:
        if story := self._open.get(request):
            story.add(Moved(now - story.arrived_at, engine))

    def held(self, request: str, engine: str, num_ahead: int | None, now: float) -> None:
        if story := self._open.get(request):
            story.holds = EngineHolds(now - story.arrived_at, engine, num_ahead)

    def first_token(self, request: str, engine: str, now: float) -> None:
        story = self._open.get(request)
        if story is not None and story.sent is not None:
            at_s = now - story.arrived_at
            story.first_token = FirstToken(at_s, engine, at_s - story.sent.at_s, story.sent.predicted_ttft_s)
            story.add(story.first_token)

    def finished(self, request: str, finish: FinishReason, num_tokens: int, now: float) -> None:
        self._end(request, Outcome.FINISHED, str(finish), num_tokens, now, now)

    def failed(self, request: str, error: RouterError, num_tokens: int, now: float) -> None:
        outcome = Outcome.FAILED if isinstance(error, RequestFailed) else Outcome.REJECTED
        self._end(request, outcome, str(error), num_tokens, now)

    def left(
        self, request: str, outcome: Outcome, reason: str, num_tokens: int, last_token_at: float, now: float
    ) -> None:
        """Its consumer ended it."""
        self._end(request, outcome, reason, num_tokens, now, last_token_at)

    def _end(
        self, request: str, outcome: Outcome, reason: str, num_tokens: int, now: float, last_at: float | None = None
    ) -> None:
        story = self._open.pop(request, None)
        if story is None:
            return
        tpot_s = None
        if story.first_token and last_at is not None and num_tokens > 1:
            tpot_s = (last_at - story.arrived_at - story.first_token.at_s) / (num_tokens - 1)
        story.ended = Ended(now - story.arrived_at, outcome, reason, num_tokens, tpot_s)
        story.add(story.ended)
        self._ended[story.number] = story
        if len(self._ended) > self._kept_requests:
            self._ended.popitem(last=False)
            while self._decided and self._is_forgotten(self._decided[0][0]):
                self._trim_oldest()

    def _is_forgotten(self, story: Story) -> bool:
        return story.ended is not None and story.number not in self._ended


def _weight(decided: Decided) -> int:
    """A view without engines counts, too, or any number of them would be kept."""
    return max(1, decided.seen.num_engines)
