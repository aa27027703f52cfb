"""Holds what a policy sees: the living engines, by their statuses and by what this gateway has just sent them.

A status is old the moment it arrives, so a view keeps moments instead of durations: when the reported prefills will
have ended, when the slack of the decodes will be gone. Then a view needs no refreshing as time passes, and is made anew
only when a status or a dispatch changes it. Engines do not tell at once what can be foreseen: that decodes go on. What
this gateway has sent and the engine has not yet counted is added, so that a burst does not herd onto the engine that
looked idle.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

import msgspec

from engines.costs.linear import decode_step_s, prefill_s
from engines.scheduling.demand import FAR, held_tokens, with_one_more
from engines.transfers.freeness import freeness, in_all
from mesh.wire.control import EnginePlace, ProcessState, Role
from mesh.wire.requests import PrefixAt
from mesh.wire.status import (
    DecodeCost,
    Demand,
    EngineStatus,
    FailedLoad,
    ForeseenSlack,
    PrefillCost,
    ServiceStatus,
)
from router.view.engine_work import Coming, DuePrefill, Newcomer, Prefills, Reservation

PACE_TOKENS = 1024
FORESEEN_S = 0.25  # after a status: as long at least, decodes are taken to go on as it says


class PrefillPace(NamedTuple):
    """Seconds of a prefill of one token, and of one of `PACE_TOKENS`: tells engines apart that are not equally fast."""

    one_s: float
    many_s: float

    @classmethod
    def of(cls, cost: PrefillCost) -> "PrefillPace":
        return cls(prefill_s(cost, 1), prefill_s(cost, PACE_TOKENS))


class DecodeTurn(NamedTuple):
    """The turn of a service's decodes on an engine. ``step_s``: of each step, if one more of its requests joins them.

    ``num_steps``: until the last of them has ended. What lasts longer keeps other services in line for longer.
    """

    step_s: float
    num_steps: int


class ServiceView(msgspec.Struct, frozen=True):
    """One service's KV pool on one engine, net of reservations, and what its prefills and decodes cost there."""

    num_blocks: int
    num_free_blocks: int
    block_size: int  # tokens
    prefill_cost: PrefillCost
    decode_cost: DecodeCost
    pace: PrefillPace
    prefill_error: float | None = None  # of the engine's predictions of its recent steps, 90th percentile
    decode_error: float | None = None
    freeness: float = inf  # tokens of head room for each running request (Llumnix)
    bare_freeness: float = inf  # the same without what engines keep free beside requests of high priority
    num_sharers: int = 0  # requests that freeness is shared by: those that run, wait or are reserved for
    expected: Demand | None = None  # until they end, reservations included; None: nobody tells
    held_by_priority: Sequence[tuple[int, int]] = ()  # blocks of running requests, told when memory is short
    fillers_waiting: int = 0  # requests without a promise; nothing else counts them
    fillers_running: int = 0
    line_s: float | None = (
        None  # that a newcomer's prompt waits for others by the engine's discipline; None: by promises
    )
    num_requests: int = 0  # that run, wait or are reserved for
    num_decoding: int = 0  # that one more would decode with, in the same step
    coming_step_s: float = 0.0  # of decodes, of which the first is on its way; 0: some decode already, or none comes

    @property
    def watermark(self) -> float:
        """Fraction of KV blocks in use."""
        return (self.num_blocks - self.num_free_blocks) / self.num_blocks if self.num_blocks else 1.0

    @property
    def num_slots(self) -> int:
        """Tokens that the whole pool can hold."""
        return self.num_blocks * self.block_size

    @property
    def demand(self) -> Demand:
        """The demand of its requests. Where nobody tells: that they stay as they are, for good."""
        if self.expected is not None:
            return self.expected
        return _unforeseen(self.num_sharers, (self.num_blocks - self.num_free_blocks) * self.block_size)

    @property
    def last_steps(self) -> int:
        """Return the steps until the last of its requests has ended, as expected."""
        return self.demand.peaks[-1][0] if self.num_requests and self.demand.peaks else 0

    def can_ever_hold(self, num_tokens: int) -> bool:
        return num_tokens <= self.num_blocks * self.block_size

    def can_hold(self, num_tokens: int) -> bool:
        return num_tokens <= self.num_free_blocks * self.block_size

    def can_make_room(self, num_tokens: int, priority: int) -> bool:
        """Return whether less urgent requests hold enough, beside what is free: its engine takes it from them."""
        yielding = sum([blocks for other, blocks in self.held_by_priority if other < priority])
        return yielding > 0 and num_tokens <= (self.num_free_blocks + yielding) * self.block_size


class EngineView(msgspec.Struct, frozen=True):
    """One living engine. Moments are on the gateway's clock."""

    id: str
    role: Role
    state: ProcessState
    services: Mapping[str, ServiceView]
    received_at: float  # the status behind this
    num_running: int  # requests that hold KV: in the decode batch, or being prefilled
    num_requests: int  # running, waiting and reserved
    num_prefills: int  # running, waiting and reserved
    num_tokens: int  # in flight: context tokens of all requests, reserved ones included
    prefills_end_at: float  # the reported ones (Tropical: PredExeEndTime)
    reserved_s: float  # of prefills beyond those
    slack_ends_at: float  # of its decodes, if prefills took nothing; infinite: none can (still) keep its promise
    decode_step_s: float  # predicted, of the next step of what decodes there
    tpot_slo_s: float  # the tightest promise of those; infinite: there are none
    prefills: Sequence[DuePrefill]  # in their order
    num_devices: int
    num_role_changes: int
    foreseen: Sequence[ForeseenSlack] = ()  # of its decodes when their answers end, the least first, prefills left out
    joining: Sequence[Newcomer] = ()  # those that the engine does not count yet
    max_running: int = 0  # requests of one service that hold KV there at a time; 0: not known
    foreseen_s: float = FORESEEN_S  # after the status: as long, its decodes are taken to go on
    step_wait_s: float = 0.0  # that a first token takes beyond all prompts, as others decode there
    place: EnginePlace | None = None  # in the newest placement plan that it knows of
    keeps_role: bool = False
    failed: Sequence[FailedLoad] = ()  # services that it should serve and cannot
    coming: Sequence[Coming] = ()  # those that are handed over to it, and that it does not count yet

    def has_place(self, service: str) -> bool:
        """Return whether one more request may hold KV beside those that are there and those to come: else it would wait
        until one of them ends, however idle the engine looks. Static batches are as large as they were formed.
        """
        return not self.max_running or self.keeps_role or self.services[service].num_requests < self.max_running

    def backlog_s(self, now: float) -> float:
        """The seconds until all prefills known here have ended."""
        return max(0.0, self.prefills_end_at - now) + self.reserved_s

    def line_s(self, service: str, now: float) -> float | None:
        """Seconds that a newcomer's prompt waits for others whatever is promised, by the engine's discipline; None: it
        goes by promises. What was sent there since is taken to come first.
        """
        told_s = self.services[service].line_s
        return None if told_s is None else max(0.0, told_s - (now - self.received_at)) + self.reserved_s

    def wait_s(self, service: str, now: float) -> float:
        """Seconds until a newcomer's prompt is begun, if nobody makes way for it."""
        line_s = self.line_s(service, now)
        return self.backlog_s(now) if line_s is None else line_s

    @property
    def known_prefills_s(self) -> float:
        """The seconds of all prefills known here, as of its status, what it has computed since then included."""
        return self.prefills_end_at - self.received_at + self.reserved_s

    def slack_s(self, now: float) -> float:
        """The smallest slack of its running decodes, before the backlog takes from it. Infinite if nothing decodes.

        Of the steps that will have ended since the status, each added what it was promised. Prefills hold them up.
        """
        if self.slack_ends_at == inf:
            return inf
        return self.slack_ends_at - now + self._gained_s(now)

    def _gained_s(self, now: float) -> float:
        decoding_s = min(now, self.received_at + self.foreseen_s) - max(self.received_at, self.prefills_end_at)
        if decoding_s <= 0 or self.decode_step_s <= 0 or self.tpot_slo_s == inf:
            return 0.0
        return decoding_s // self.decode_step_s * self.tpot_slo_s

    def prefill_s(self, service: str, num_tokens: int, num_cached: int = 0) -> float:
        """p(L): predicted seconds of a prefill of that length, of which the first ``num_cached`` are there.

        The last token is computed in any case.
        """
        num_cached = min(num_cached, num_tokens - 1)
        return prefill_s(self.services[service].prefill_cost, num_tokens - num_cached, num_cached)

    def joined_step_s(self, service: str, num_tokens: int) -> float:
        """Predicted seconds of a decode step when a request of that context has joined what decodes there now.

        Services take turns, so the first decode of one adds a step of its own. Those that come are counted on.
        """
        others_s = self.decode_step_s
        if len(self.services) > 1:
            others_s += self.coming_steps_s(service)
        pool = self.services[service]
        cost = pool.decode_cost
        if not pool.num_decoding:
            return others_s + decode_step_s(cost, 1, num_tokens)
        return others_s + cost.per_request_s + cost.per_context_token_s * num_tokens

    def coming_steps_s(self, service: str) -> float:
        """Predicted seconds of the steps that services but this one add, as soon as their first decodes are there."""
        return sum([pool.coming_step_s for name, pool in self.services.items() if name != service])


class RequestView(msgspec.Struct, frozen=True):
    """What a policy may know of a request. Times are on the gateway's clock."""

    id: str
    service: str
    num_tokens: int  # to compute before its next token: prompt, and what was generated before a recovery
    arrived_at: float
    deadline: float  # d: when its first token (after a recovery: its next one) is due
    tpot_slo_s: float
    priority: int = 0
    cached: Mapping[str, int] = {}  # of its first tokens, by engine: likely in its prefix cache, or as good as there
    loadable: Mapping[str, int] = {}  # tokens beyond its prefix cache, likely in KV tiers, by engine
    pullable: Mapping[str, PrefixAt] = {}  # from where an engine would rather pull its first tokens, by engine
    num_generated: int = 0  # of ``num_tokens``: before a recovery
    answer_tokens: int = 0  # expected in all, those included; 0: nobody asked
    least_tokens: int = 0  # in all, that its answer will hardly be shorter than; 0: not known
    may_be_late: bool = False  # its client would rather have a late answer than none


def turn_of(service: str, engine: EngineView) -> DecodeTurn:
    """Return the turn of a service on an engine. It is endless, and steps are as they are, where nobody stands in line
    for it: where promises say who goes first, or no other service is.
    """
    pool = engine.services[service]
    if pool.line_s is None or len(engine.services) == 1:
        return DecodeTurn(engine.decode_step_s, FAR)
    return DecodeTurn(engine.joined_step_s(service, 1), pool.last_steps)


def have_same_place(one: EngineView, other: EngineView) -> bool:
    """Return whether both may do the same for the same services and ever hold as much."""
    if one.role is not other.role or one.state is not other.state or len(one.services) != len(other.services):
        return False
    for name, service in one.services.items():
        known = other.services.get(name)
        if known is None or known.num_slots != service.num_slots:
            return False
    return True


def engine_view(
    id_: str,
    status: EngineStatus,
    received_at: float,
    reservations: Sequence[Reservation],
    known: EngineView | None = None,
    foreseen_s: float = FORESEEN_S,
) -> EngineView:
    """A status plus reservations. ``known``: the view before, of which what is the same need not be worked out."""
    services_known = {} if known is None else known.services
    prefills = [one.prefill_s for one in reservations if one.prefill_s is not None] if reservations else ()
    reported_s = status.prefill_remaining_s + status.prefill_waiting_s
    return EngineView(  # in the order of its fields: names would take longer than all else here
        id_,
        status.role,
        status.state,
        {
            service.name: _service_view(service, status, reservations, services_known.get(service.name))
            for service in status.services
            if not service.is_leaving
        },
        received_at,
        status.num_running,
        status.num_running + status.num_waiting + len(reservations),
        int(status.prefill_remaining_s > 0) + status.num_waiting + len(prefills),
        status.num_tokens + sum([one.num_tokens for one in reservations]),
        received_at + reported_s,
        sum(prefills),
        inf if status.min_slack_s is None else received_at + status.min_slack_s,
        status.decode_step_s,
        inf if status.min_tpot_slo_s is None else status.min_tpot_slo_s,
        Prefills(status.prefills, received_at, reservations, keeps_order=status.keeps_order)
        if status.prefills or prefills
        else (),
        status.num_devices,
        status.num_role_changes,
        status.foreseen,
        [
            Newcomer(one.joins_at, max(1, one.least_tokens - one.num_generated), one.tpot_slo_s)
            for one in reservations
            if one.least_tokens
        ]
        if reservations
        else (),
        status.max_running,
        foreseen_s,
        status.step_wait_s,
        status.place,
        status.keeps_role,
        status.failed_loads,
        [Coming(one.joins_at, one.tpot_slo_s) for one in reservations if one.prefill_s is None] if reservations else (),
    )


def _service_view(
    status: ServiceStatus, engine: EngineStatus, held: Sequence[Reservation], known: ServiceView | None
) -> ServiceView:
    if known is not None and known.prefill_cost == status.prefill_cost:
        pace = known.pace
    else:
        pace = PrefillPace.of(status.prefill_cost)
    reserved = [-(-r.num_tokens // status.block_size) for r in held if r.service == status.name] if held else ()
    num_reserved = sum(reserved)
    num_requests = status.num_running + status.num_waiting + len(reserved)
    comes = num_requests > 0 and not status.num_decoding and engine.role is not Role.PREFILL
    return ServiceView(
        status.num_blocks,
        max(0, status.num_free_blocks - num_reserved),
        status.block_size,
        status.prefill_cost,
        status.decode_cost,
        pace,
        status.prefill_error,
        status.decode_error,
        *_freeness(status, engine, len(reserved), num_reserved * status.block_size),
        _expected(status, held) if held else status.demand,
        status.held_by_priority,
        status.fillers_waiting,
        status.fillers_running,
        status.line_s,
        num_requests,
        status.num_decoding,
        decode_step_s(status.decode_cost, 1, 1) if comes else 0.0,
    )


def _unforeseen(num_requests: int, num_tokens: int) -> Demand:
    return Demand(num_requests, num_tokens, peaks=((FAR, num_tokens),) if num_tokens else ())


def _expected(status: ServiceStatus, held: Sequence[Reservation]) -> Demand | None:
    joining = [one for one in held if one.answer_tokens and one.service == status.name]
    demand = status.demand
    if not joining:
        return demand
    if demand is None:
        held_blocks = status.num_blocks - status.num_free_blocks
        demand = _unforeseen(status.num_running, held_blocks * status.block_size)
    peaks = demand.peaks
    for one in joining:
        steps = one.answer_tokens - one.num_generated
        peaks = with_one_more(peaks, steps, held_tokens(one.num_tokens, status.block_size))
    return Demand(
        demand.num_requests + len(joining),
        demand.prompt_tokens + sum([one.num_tokens - 1 - one.num_generated for one in joining]),
        demand.answer_tokens + sum([one.answer_tokens for one in joining]),
        min([demand.tpot_slo_s, *(one.tpot_slo_s for one in joining)]),
        peaks,
        demand.error_requests,
        demand.error_tokens,
    )


def _freeness(
    status: ServiceStatus, engine: EngineStatus, num_reserved: int, reserved_tokens: int
) -> tuple[float, float, int]:
    """Llumnix's (M - V) / B as told, and bare, and B: with all who wait and what is reserved in V and B, too.

    An engine tells the context of all that it holds: what is in no block waits. It has counted the head of its queue
    itself, which is taken to be as long as the others.
    """
    num_running, num_waiting = status.num_running, engine.num_waiting
    held_tokens = (status.num_blocks - status.num_free_blocks) * status.block_size
    queued_tokens = max(0, engine.num_tokens - held_tokens) if num_waiting else 0
    behind_tokens = queued_tokens * (num_waiting - 1) / num_waiting if num_waiting else 0.0
    told_tokens = in_all(status.freeness, num_running) - behind_tokens - reserved_tokens
    bare_tokens = status.num_free_blocks * status.block_size - queued_tokens - reserved_tokens
    num_sharers = num_running + num_waiting + num_reserved
    return freeness(told_tokens, num_sharers), freeness(bare_tokens, num_sharers), num_sharers
