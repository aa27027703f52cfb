"""Finds moves that keep promises which would be broken without them (docs/concepts/rescheduling.md, "promise").

Theory of operation. A decode's promise is in danger if it will have saved less than nothing when its answer ends, at
the pace of this engine. It is kept if the decode leaves for an engine where it will have saved something, or if
neighbours leave whose share of each step it then gets. Both kinds of moves are compared by what they save and cost. A
move is open on two conditions. The other engine keeps the promises of all that is there and of the newcomer, which
stands still for a while (`engines.transfers.move_cost`). And the newcomer will still decode when it gets there.

A prompt that has not begun has no KV to take along. If its first token would be late here and in time on another
engine, its gateway gets it back, and dispatches it anew.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from engines.costs.linear import decode_step_s, prefill_s
from engines.engine_request import EngineRequest
from engines.scheduling.backlog import ToldPrefill
from engines.scheduling.service import Service, all_decodes
from engines.scheduling.slack import foreseen_slack_s
from engines.transfers.move_cost import MoveCosts
from engines.transfers.peers import Peer
from mesh.wire.control import PrefillMode, Role

LEAST_ERROR, MOST_ERROR = 0.05, 0.5  # of predictions, whatever engines say of their own
TOGETHER = 4  # moves of neighbours that may be needed to keep one promise
MOST_NEIGHBOURS = 16  # that are looked at, those that are cheapest to move
ANEW_S = 0.02  # from one engine through the gateway to another one

Rested = Mapping[str, Sequence[EngineRequest]]  # requests that may move now, by service
PeersOf = Callable[[Service], Sequence[Peer]]


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What an engine of its own needs to foresee. ``prefills``: that are not done, those that are due first first."""

    services: Mapping[str, Service]
    prefills: Callable[[float], Sequence[ToldPrefill]]
    costs: MoveCosts
    peers: PeersOf


class Better(NamedTuple):
    """A move that keeps promises. ``num_kept``: of how many requests. ``spare_s``: the least that anybody there will
    have saved.
    """

    service: Service
    request: EngineRequest
    to: str
    num_kept: int
    spare_s: float


class Late(NamedTuple):
    """A prompt that would be late here by ``late_s``, and would have ``early_s`` to spare on ``engine``."""

    request: EngineRequest
    late_s: float
    engine: str
    early_s: float


class _Danger(NamedTuple):
    """A decode that is late by ``late_s`` after its last ``num_steps`` steps."""

    request: EngineRequest
    late_s: float
    num_steps: int


def better_move(here: Foreseen, rested: Rested, leaving: Counter[str], now: float) -> Better | None:
    """Return the move that keeps the most promises, of the highest priority, for the least copying.

    ``leaving``: how many requests are on their way to which engine.
    """
    step_s = _step_s(here, now)
    endangered = _endangered(here, step_s, now)
    if not endangered:
        return None
    best: tuple[tuple[int, int, int], Better] | None = None
    for service, request in _candidates(here.services, rested, endangered):
        cost = here.costs.predict(len(request.tokens))
        if request.expected_left * step_s <= cost.takes_s:
            continue  # it will have ended before it gets there
        kept = _kept_without(service, request, endangered, cost.takes_s / step_s)
        key = (max([one.spec.priority for one in kept], default=0), len(kept), -len(request.tokens))
        if not kept or (best is not None and key <= best[0]):
            continue
        there = _best_place(service, request, here.peers(service), cost.stops_s, leaving, now)
        if there is not None:
            best = key, Better(service, request, there[1], len(kept), there[0])
    return None if best is None else best[1]


def late_prompt(here: Foreseen, may_go: Callable[[EngineRequest], bool], now: float) -> Late | None:
    """Return a prompt whose first token would come too late here, and in time elsewhere."""
    ends_s, decodes = 0.0, _Own.of(here.services, now)
    for prefill in here.prefills(now):
        request, service = prefill.request, prefill.service
        ends_s += prefill.left_s
        within_s = request.ttft_deadline - now
        if request.num_computed or request.num_generated or within_s <= prefill.left_s or not may_go(request):
            continue
        lacks_memory = service.queue.num_free < service.pool.blocks_for(len(request.tokens))
        finish_s = inf if lacks_memory else decodes.finish_s(request.prefill_mode, ends_s)
        if finish_s <= within_s:
            continue
        early = [(_early_s(request, peer, within_s), peer.id) for peer in here.peers(service)]
        early_s, engine = max(early, default=(-inf, ""))
        if early_s >= 0:
            return Late(request, finish_s - within_s, engine, early_s)
    return None


# --- decodes ----------------------------------------------------------------------------------------------------------


def _step_s(here: Foreseen, now: float) -> float:
    """Predict the decode step of all that decodes here and of all that will, once its prompt is computed."""
    joining: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for prefill in here.prefills(now):
        if prefill.request.decode_engine is None:
            joining[prefill.service.name] += 1
            tokens[prefill.service.name] += len(prefill.request.tokens)
    step_s = 0.0
    for name, service in here.services.items():
        decoding = service.decoding()
        context = sum([len(request.tokens) for request in decoding])
        cost = service.step_cost().decode
        step_s += decode_step_s(cost, len(decoding) + joining[name], context + tokens[name])
    return step_s


def _endangered(here: Foreseen, step_s: float, now: float) -> list[_Danger]:
    """Decodes that will be late when their answers end. Prompts hold them up that do not wait for slack."""
    held_up_s = sum([one.left_s for one in here.prefills(now) if not _waits_for_slack(one.request.prefill_mode)])
    endangered = []
    for service in here.services.values():
        for request in service.decoding():
            num_steps = request.expected_left
            spare_s = foreseen_slack_s(request, num_steps, now, step_s) - held_up_s
            if spare_s < 0 and foreseen_slack_s(request, num_steps, now, service.alone_s()) >= 0:
                endangered.append(_Danger(request, -spare_s, num_steps))
    return endangered


def _waits_for_slack(mode: PrefillMode) -> bool:
    return mode in (PrefillMode.SLACK, PrefillMode.FORESEEN)


def _candidates(
    services: Mapping[str, Service], rested: Rested, endangered: Sequence[_Danger]
) -> Iterator[tuple[Service, EngineRequest]]:
    """Requests in danger, and those of their neighbours that are cheapest to move."""
    in_danger = {danger.request for danger in endangered}
    pairs = [(services[name], request) for name, requests in rested.items() for request in requests]
    pairs.sort(key=lambda pair: len(pair[1].tokens))
    yield from [pair for pair in pairs if pair[1] in in_danger]
    yield from [pair for pair in pairs if pair[1] not in in_danger][:MOST_NEIGHBOURS]


def _kept_without(
    service: Service, leaver: EngineRequest, endangered: Sequence[_Danger], after_steps: float
) -> list[EngineRequest]:
    """Requests whose promise is kept if one leaves in ``after_steps`` steps, or a few like it do."""
    decoding = service.decoding()
    context, cost = sum([len(request.tokens) for request in decoding]), service.step_cost().decode
    less_s = decode_step_s(cost, len(decoding), context) - decode_step_s(
        cost, len(decoding) - 1, context - len(leaver.tokens)
    )
    return [
        request
        for request, late_s, num_steps in endangered
        if request is leaver or late_s <= TOGETHER * max(0.0, num_steps - after_steps) * less_s
    ]


def _best_place(
    service: Service,
    request: EngineRequest,
    peers: Sequence[Peer],
    stops_s: float,
    leaving: Counter[str],
    now: float,
) -> tuple[float, str] | None:
    """The engine where the least that anybody will have saved is the most; None: some promise breaks on all."""
    size = len(request.tokens) + request.expected_left
    num_blocks = service.pool.blocks_for(min(size, service.pool.num_blocks * service.pool.block_size))
    places = [
        (_spare_s(request, peer, stops_s, leaving[peer.id], now), peer.id)
        for peer in peers
        if peer.decodes and peer.num_free_blocks >= num_blocks
    ]
    place = max(places, default=(-inf, ""))
    return place if place[0] >= 0 else None


def _spare_s(request: EngineRequest, peer: Peer, stops_s: float, num_coming: int, now: float) -> float:
    """What the newcomer, or whoever is there and has the least, will have saved there."""
    status = peer.status
    step_s = (1 + _error(peer.service.decode_error)) * _joined_step_s(peer, request, num_coming)
    held_up_s = max(status.prefill_remaining_s + status.prefill_waiting_s, peer.service.line_s or 0.0)
    slower_s = max(0.0, step_s - status.decode_step_s)
    others_s = min([slack_s - slower_s * num_steps for slack_s, num_steps in status.foreseen], default=inf)
    own_s = foreseen_slack_s(request, request.expected_left, now, step_s) - stops_s
    return min(own_s, others_s) - held_up_s


def _joined_step_s(peer: Peer, request: EngineRequest, num_coming: int) -> float:
    """Predict a decode step there with all that was sent there, and the newcomers: half of each answer."""
    status, step_s = peer.status, 0.0
    for service in status.services:
        demand, number = service.demand, service.num_running
        context = round(status.num_tokens * number / max(1, status.num_running))
        if demand is not None:
            number, context = demand.num_requests, demand.prompt_tokens + demand.answer_tokens // 2
        if service.name == request.spec.service:
            number += 1 + num_coming
            context += (1 + num_coming) * (len(request.tokens) + request.expected_left // 2)
        step_s += decode_step_s(service.decode_cost, number, context)
    return step_s


def _error(told: float | None) -> float:
    return min(MOST_ERROR, max(LEAST_ERROR, told or 0.0))


# --- prompts ----------------------------------------------------------------------------------------------------------


class _Own(NamedTuple):
    """The slack of an engine's decodes, by which prompts go that wait for it, and the speed of prompts beyond it."""

    step_s: float
    saved_s: float
    foreseen_s: float
    speed: float

    @classmethod
    def of(cls, services: Mapping[str, Service], now: float) -> "_Own":
        parts = all_decodes([service.decodes(now) for service in services.values()])
        step_s, tpot_slo_s = parts.step_s, parts.tpot_slo_s
        foreseen_s = [
            foreseen_slack_s(request, request.least_left, now, step_s)
            for service in services.values()
            for request in service.decoding()
            if foreseen_slack_s(request, request.expected_left, now, step_s) >= 0
        ]
        saved_s = parts.paid_until - now - step_s
        return cls(step_s, saved_s, min(foreseen_s, default=inf), _speed(step_s, tpot_slo_s))

    @classmethod
    def there(cls, peer: Peer) -> "_Own":
        status = peer.status
        saved_s = inf if status.min_slack_s is None else status.min_slack_s
        foreseen_s = min([slack_s for slack_s, _ in status.foreseen], default=inf)
        return cls(status.decode_step_s, saved_s, foreseen_s, _speed(status.decode_step_s, peer.tightest_tpot_s))

    def finish_s(self, mode: PrefillMode, work_s: float) -> float:
        """Return when so many seconds of prompts are computed: first in slack, then in what decode steps leave."""
        slack_s = {PrefillMode.SLACK: self.saved_s, PrefillMode.FORESEEN: self.foreseen_s}.get(mode, inf)
        beyond_s = work_s - max(0.0, slack_s)
        if beyond_s <= 0:
            return self.step_s + work_s
        return self.step_s + work_s - beyond_s + (beyond_s / self.speed if self.speed > 0 else inf)


def _speed(step_s: float, tpot_slo_s: float) -> float:
    return max(0.0, 1 - step_s / tpot_slo_s)


def _early_s(request: EngineRequest, peer: Peer, within_s: float) -> float:
    """Seconds that its first token would have to spare there; negative: it would be late, or make another one late."""
    status, service = peer.status, peer.service
    num_blocks = -(-(len(request.tokens) + 1) // service.block_size)
    if status.role is Role.DECODE or peer.num_free_blocks < num_blocks:
        return -inf
    error = 1 + _error(service.prefill_error)
    own_s = error * prefill_s(service.prefill_cost, len(request.tokens))
    if service.line_s is not None:
        return within_s - ANEW_S - error * service.line_s - own_s
    ahead_s, behind = 0.0, list[tuple[float, float]]()
    for due_s, left_s, priority, running_s in status.prefills:
        if (-priority, due_s) <= (-request.spec.priority, within_s):
            ahead_s += error * left_s
        else:
            ahead_s += error * running_s
            behind.append((due_s, error * (left_s - running_s)))
    decodes = _Own.there(peer)
    ends_s = ahead_s + own_s
    finish_s = ANEW_S + decodes.finish_s(request.prefill_mode, ends_s)
    for due_s, left_s in behind:
        ends_s += left_s
        if ends_s > due_s >= ends_s - own_s:
            return -inf
    return within_s - finish_s
