"""Tells what happened to a request as data, for the API and for ``mesh explain``.

Live gateways and simulated ones keep the same timelines (`router.history.timelines`), so this reads both. What a
policy saw of an engine is worked out here from the view that was kept, and nowhere else.
"""

from math import isfinite

import msgspec

from mesh.wire.control import ProcessState, Role
from mesh.wire.requests import PrefixAt
from router.history.timeline import (
    Decided,
    Ended,
    EngineAccepted,
    EngineHolds,
    EngineRefused,
    FirstToken,
    Interrupted,
    OwnerChanged,
    RequestTimeline,
    Seen,
    TokensResumed,
)
from router.history.timelines import Timelines
from router.policies.policy import Dispatch, GiveUp, Reject, Wait
from router.view.engine_view import EngineView, RequestView


class EngineSeen(msgspec.Struct, frozen=True):
    """One engine as a policy saw it when it decided. ``slack_s``: None if nothing decodes there."""

    id: str
    role: Role
    num_prefills: int  # running, waiting, and on their way there
    backlog_s: float  # until they have ended
    prefill_s: float  # predicted, of this request's
    num_cached_tokens: int  # of its prompt, likely there already
    slack_s: float | None  # the smallest of its running decodes, before the backlog takes from it
    num_running: int
    num_tokens: int  # in flight
    watermark: float  # fraction of KV blocks in use
    status_age_s: float
    num_loadable_tokens: int = 0  # of its prompt, that KV tiers of its host likely have and it has not


class ExplainedDecision(msgspec.Struct, frozen=True, tag="decided"):
    """One decision of a policy. ``verdict``: dispatch, wait, reject (never possible) or give_up (not in time). Engines
    are None without dispatch.

    ``engines``: those that served the request's service then, less the avoided and the broken ones. Of old decisions
    only the chosen ones are kept; ``num_engines`` counts all that were in view.
    """

    at_s: float
    attempt: int
    policy: str
    verdict: str
    reason: str  # the rule of a dispatch, else why not
    num_tokens: int  # to compute before the next one
    deadline_s: float  # from arrival
    prefill_engine: str | None
    decode_engine: str | None
    prefill_s: float | None
    predicted_ttft_s: float | None  # from this moment on
    numbers: dict[str, float | None]
    prefix_at: PrefixAt | None  # from where the prefill engine may pull KV of its first tokens
    avoided: list[str]
    broken: list[str]  # their circuit breakers are open
    engines: list[EngineSeen]
    num_engines: int


Event = (
    ExplainedDecision
    | EngineAccepted
    | EngineRefused
    | EngineHolds
    | Interrupted
    | OwnerChanged
    | TokensResumed
    | FirstToken
    | Ended
)


class Explanation(msgspec.Struct, frozen=True):
    """One request's timeline. Times of events count from its arrival, ``age_s`` ago."""

    id: str
    service: str
    num_prompt_tokens: int
    max_tokens: int
    priority: int
    slo_ttft_s: float
    slo_tpot_s: float
    age_s: float
    admitted_s: float  # from its arrival: when it had been read and tokenised
    events: list[Event]
    num_forgotten: int = 0  # earlier events that are not kept
    trace_id: str | None = None  # if gateways make traces; whether it was exported, the collector knows
    is_estimated: bool = False  # the length of its prompt: the gateway has no tokenizer for it

    @property
    def dispatch(self) -> ExplainedDecision | None:
        """Return the last dispatch."""
        decided = [
            event for event in self.events if isinstance(event, ExplainedDecision) and event.verdict == "dispatch"
        ]
        return decided[-1] if decided else None

    @property
    def first_token(self) -> FirstToken | None:
        return next((event for event in self.events if isinstance(event, FirstToken)), None)

    @property
    def end(self) -> Ended | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Ended) else None


class HistoryMemory(msgspec.Struct, frozen=True):
    """How far back a gateway remembers. ``age_s``: of the oldest end that it knows; None: it has forgotten nothing."""

    num_requests: int
    age_s: float | None


class Explanations(msgspec.Struct, frozen=True):
    """Explanations of several requests, the newest first."""

    gateway: str
    memory: HistoryMemory
    requests: list[Explanation]


def explain(timeline: RequestTimeline, now: float) -> Explanation:
    facts = timeline.facts
    return Explanation(
        id=facts.id,
        service=facts.service,
        num_prompt_tokens=facts.num_prompt_tokens,
        max_tokens=facts.max_tokens,
        priority=facts.priority,
        slo_ttft_s=facts.slo_ttft_s,
        slo_tpot_s=facts.slo_tpot_s,
        age_s=now - timeline.arrived_at,
        admitted_s=facts.admitted_s,
        events=_events(timeline),
        num_forgotten=timeline.num_events - len(timeline.events),
        trace_id=timeline.trace_id,
        is_estimated=timeline.is_estimated,
    )


def _events(timeline: RequestTimeline) -> list[Event]:
    """Where it stands is the last one, as long as nothing else has happened."""
    events: list[Event] = [
        _decision(event, timeline) if isinstance(event, Decided) else event for event in timeline.events
    ]
    is_newest = timeline.holds is not None and (not events or timeline.holds.at_s >= events[-1].at_s)
    return [*events, timeline.holds] if timeline.holds is not None and is_newest else events


def memory(timelines: Timelines, now: float) -> HistoryMemory:
    since = timelines.remembers_from
    return HistoryMemory(len(timelines), None if since is None else now - since)


def _decision(decided: Decided, timeline: RequestTimeline) -> ExplainedDecision:
    decision, seen = decided.decision, decided.seen
    dispatch = decision if isinstance(decision, Dispatch) else None
    numbers = dispatch.numbers if dispatch else {}
    return ExplainedDecision(
        at_s=decided.at_s,
        attempt=decided.attempt,
        policy=decided.policy,
        verdict=_verdict(decision),
        reason=decision.rule if isinstance(decision, Dispatch) else decision.reason,
        num_tokens=seen.request.num_tokens,
        deadline_s=seen.request.deadline - timeline.arrived_at,
        prefill_engine=None if dispatch is None else dispatch.prefill_engine,
        decode_engine=None if dispatch is None else dispatch.decode_engine,
        prefill_s=None if dispatch is None else dispatch.prefill_s,
        predicted_ttft_s=None if dispatch is None else dispatch.predicted_ttft_s,
        prefix_at=None if dispatch is None else dispatch.prefix_at,
        numbers={name: value if isfinite(value) else None for name, value in numbers.items()},
        avoided=sorted(seen.avoided),
        broken=sorted(seen.broken),
        engines=_engines(seen),
        num_engines=seen.num_engines,
    )


def _verdict(decision: Dispatch | Wait | Reject | GiveUp) -> str:
    match decision:
        case Dispatch():
            return "dispatch"
        case Wait():
            return "wait"
        case Reject():
            return "reject"
        case GiveUp():
            return "give_up"


def _engines(seen: Seen) -> list[EngineSeen]:
    return [
        describe(engine, seen.request, seen.now)
        for engine in seen.view.engines.values()
        if engine.state is ProcessState.READY and seen.request.service in engine.services
    ]


def describe(engine: EngineView, request: RequestView, now: float) -> EngineSeen:
    """The numbers that policies go by."""
    num_cached, slack_s = request.cached.get(engine.id, 0), engine.slack_s(now)
    return EngineSeen(
        id=engine.id,
        role=engine.role,
        num_prefills=engine.num_prefills,
        backlog_s=engine.backlog_s(now),
        prefill_s=engine.prefill_s(request.service, request.num_tokens, num_cached),
        num_cached_tokens=num_cached,
        slack_s=slack_s if isfinite(slack_s) else None,
        num_running=engine.num_running,
        num_tokens=engine.num_tokens,
        watermark=engine.services[request.service].watermark,
        status_age_s=now - engine.received_at,
        num_loadable_tokens=request.loadable.get(engine.id, 0),
    )
