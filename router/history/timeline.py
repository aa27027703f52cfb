"""Keeps what happened to one request from its arrival to its end: each moment is measured here, once.

The dispatcher writes a timeline; others only read it: the recording (`router.history.records`), explanations
(`router.history.explain`), traces (`router.traces`), and metrics (`router.api.metrics`). Nothing is worked out while a
request runs. What a policy saw is kept as a reference to its immutable view; `router.history.explain` reads the numbers
from it when somebody asks.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from mesh.wire.requests import PRIORITY_BATCH, Brought, RefusalCode, RequestSpec
from router.generation import Route, TokenBatch
from router.history.records import Outcome
from router.history.trace import RequestTrace
from router.policies.policy import Decision, Dispatch
from router.view.cluster_view import ClusterView
from router.view.engine_view import RequestView

KEPT_EVENTS = 64  # of a request, the last ones


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
        self.view = ClusterView({id_: engines[id_] for id_ in chosen if id_ in engines}, peers=self.view.peers)


@dataclass(frozen=True, slots=True)
class Decided:
    """A policy decided. ``at_s`` counts from the request's arrival, here and in all events; ``attempt``: the dispatch
    decided about.
    """

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
    """Its owner could not go on; the request waits again with the tokens so far."""

    at_s: float
    reason: str
    num_tokens: int


class OwnerChanged(msgspec.Struct, frozen=True, tag="moved"):
    """Its tokens come from this engine from now on."""

    at_s: float
    engine: str


class TokensResumed(msgspec.Struct, frozen=True, tag="resumed"):
    """The first tokens since the owner changed or the request was interrupted. ``since_s``: when the last ones before
    came.
    """

    at_s: float
    engine: str
    since_s: float
    seam: str = ""  # how a server went on with what another one had begun (`router.servers.stream.going_on`)


class EngineHolds(msgspec.Struct, frozen=True, tag="holds"):
    """The last time that its engine was asked. ``num_ahead``: as in `mesh.wire.requests.Holding`."""

    at_s: float
    engine: str
    num_ahead: int | None


class FirstToken(msgspec.Struct, frozen=True, tag="first_token"):
    """The first token came. ``predicted_s``: of ``since_dispatch_s``, by the last dispatch. ``num_cached``: tokens of
    the prompt that were not computed, but found, loaded or pulled. ``brought``: what was loaded or pulled.
    """

    at_s: float
    engine: str
    since_dispatch_s: float
    predicted_s: float
    num_cached: int = 0
    brought: Brought | None = None


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The request ended. ``reason``: how it finished, else why it did not. ``tpot_s``: None with less than two
    tokens.
    """

    at_s: float
    outcome: Outcome
    reason: str
    num_tokens: int
    tpot_s: float | None


Event = Decided | EngineAccepted | EngineRefused | Interrupted | OwnerChanged | TokensResumed | FirstToken | Ended


class RequestFacts(msgspec.Struct, frozen=True):
    """What a request asked for. ``admitted_s``: from its arrival until it had been read and tokenised."""

    id: str
    service: str
    num_prompt_tokens: int
    max_tokens: int
    priority: int
    slo_ttft_s: float
    slo_tpot_s: float
    admitted_s: float
    tenant: str = ""  # whom it is counted for: a key, or a client's address

    @property
    def is_filler(self) -> bool:
        """Return whether nothing was promised for it."""
        return self.priority <= PRIORITY_BATCH

    @classmethod
    def of(cls, spec: RequestSpec, tenant: str = "") -> "RequestFacts":
        return cls(
            spec.id,
            spec.asked,
            len(spec.prompt),
            spec.sampling.max_tokens,
            spec.priority,
            spec.slo_ttft_s,
            spec.slo_tpot_s,
            spec.age_s,
            tenant,
        )


@dataclass(slots=True)
class DeliveredTokens:
    """The answer so far, as it went to the client. ``num_cached``: prompt tokens that were not computed.

    ``first_at`` is the time of the first batch, be it empty; ``last_at`` that of the last tokens.
    """

    num_tokens: int = 0
    num_cached: int = 0
    first_at: float | None = None
    last_at: float = 0.0
    apart_at: float | None = None  # when reasoning ended that promises do not count
    num_apart: int = 0  # tokens until then


@dataclass(slots=True, eq=False)
class RequestTimeline:
    """One request and what happened to it, oldest first. Times are on the gateway's clock, ``_s`` from its arrival."""

    facts: RequestFacts
    arrived_at: float
    number: int  # counts arrivals
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    num_events: int = 0  # forgotten ones included
    route: Route | None = None  # of the last dispatch
    queued_s: float | None = None  # until the dispatch that brought the first token
    holds: EngineHolds | None = None
    delivered: DeliveredTokens = field(default_factory=DeliveredTokens)
    ended: Ended | None = None
    trace: RequestTrace | None = None  # of its call, if gateways make traces
    seam: str = ""  # as in `TokensResumed`, of the newest one
    is_estimated: bool = False  # how long its prompt is: nobody here has its tokenizer
    apart_token: int | None = None  # that ends reasoning, where promises do not count that

    @property
    def id(self) -> str:
        return self.facts.id

    # --- writing ------------------------------------------------------------------------------------------------------

    def decide(self, attempt: int, policy: str, decision: Decision, seen: Seen) -> Decided:
        at_s = seen.now - self.arrived_at
        event = Decided(at_s, attempt, policy, decision, seen)
        self._add(event)
        if isinstance(decision, Dispatch):
            engines = decision.prefill_engine, decision.decode_engine
            self.route = Route(*engines, decision.rule, decision.predicted_ttft_s, at_s, attempt)
            if self.delivered.first_at is None:
                self.queued_s = at_s
        return event

    def accept(self, engine: str, now: float) -> None:
        self._add(EngineAccepted(now - self.arrived_at, engine))

    def refuse(self, engine: str, code: RefusalCode, reason: str, now: float) -> None:
        self._add(EngineRefused(now - self.arrived_at, engine, code, reason))

    def interrupt(self, reason: str, now: float) -> None:
        self._add(Interrupted(now - self.arrived_at, reason, self.delivered.num_tokens))

    def change_owner(self, engine: str, now: float) -> None:
        self._add(OwnerChanged(now - self.arrived_at, engine))

    def resume(self, engine: str, now: float) -> None:
        """The first tokens of an owner came, and have not been delivered yet."""
        if self.delivered.first_at is not None:
            since_s = self.delivered.last_at - self.arrived_at
            self._add(TokensResumed(now - self.arrived_at, engine, since_s, self.seam))

    def hold(self, engine: str, num_ahead: int | None, now: float) -> None:
        self.holds = EngineHolds(now - self.arrived_at, engine, num_ahead)

    def deliver(self, batch: TokenBatch, engine: str, now: float) -> float | None:
        """Tokens go to the client. Returns the time since those before, None for the first ones."""
        delivered, num_tokens = self.delivered, len(batch.tokens)
        if delivered.first_at is None:
            delivered.first_at, delivered.last_at, delivered.num_cached = now, now, batch.num_cached_tokens
            delivered.num_tokens = num_tokens
            self._first_token(batch.brought, engine, now)
            if self.apart_token is not None:
                self._look_for_end(batch, now)
            return None
        gap_s = now - delivered.last_at
        if num_tokens:
            delivered.last_at = now
            delivered.num_tokens += num_tokens
            if self.apart_token is not None:
                self._look_for_end(batch, now)
        return gap_s

    def _look_for_end(self, batch: TokenBatch, now: float) -> None:
        """Note when reasoning ends: the token that ends it is to the rest what the first one is to a usual answer."""
        delivered = self.delivered
        if delivered.apart_at is None and self.apart_token in batch.tokens:
            behind = len(batch.tokens) - 1 - batch.tokens.index(self.apart_token)
            delivered.apart_at, delivered.num_apart = now, delivered.num_tokens - behind

    def _first_token(self, brought: Brought | None, engine: str, now: float) -> None:
        if (route := self.route) is not None:
            at_s = now - self.arrived_at
            since_s, num_cached = at_s - route.queued_s, self.delivered.num_cached
            self._add(FirstToken(at_s, engine, since_s, route.predicted_ttft_s, num_cached, brought))

    def end(self, outcome: Outcome, reason: str, now: float) -> None:
        tpot_s = self.tpot_s if outcome in (Outcome.FINISHED, Outcome.CANCELLED) else None
        self.ended = Ended(now - self.arrived_at, outcome, reason, self.delivered.num_tokens, tpot_s)
        self._add(self.ended)

    def _add(self, event: Event) -> None:
        self.events.append(event)
        self.num_events += 1

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def trace_id(self) -> str | None:
        """The id of its trace, as people search for it."""
        return None if self.trace is None else self.trace.name

    @property
    def decisions(self) -> list[Decided]:
        return [event for event in self.events if isinstance(event, Decided)]

    @property
    def reason(self) -> str:
        """Return how it finished, or why it did not."""
        return "" if self.ended is None else self.ended.reason

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the arrival to the first token, if there is one."""
        first_at = self.delivered.first_at
        return None if first_at is None else first_at - self.arrived_at

    @property
    def tpot_s(self) -> float | None:
        """Mean time of the tokens after the first; None with less than two tokens. Without reasoning that promises do
        not count.
        """
        delivered = self.delivered
        since, num_before = delivered.first_at, 1
        if delivered.apart_at is not None:
            since, num_before = delivered.apart_at, delivered.num_apart
        if since is None or delivered.num_tokens <= num_before:
            return None
        return (delivered.last_at - since) / (delivered.num_tokens - num_before)
