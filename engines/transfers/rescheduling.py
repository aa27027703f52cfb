"""Decides which running requests an engine gives to which other engine, and when (Llumnix).

Theory of operation. Every engine hears the statuses of its neighbours (`engines.transfers.neighbours`) and decides for
itself, so there is nobody central to lose. Four things make it give a request away:

- It is to be emptied, or a service is to be unloaded: everything goes, four at a time, to whoever has most room.
- Its role is to prefill only: what decodes here goes to an engine that decodes, unless its gateway meant it to stay.
- Load: its freeness (`engines.transfers.freeness`) is low. Engines with little freeness and engines with much are
  paired by rank, the least free with the freest. As all see nearly the same, all find nearly the same pairs; where two
  choose the same engine all the same, that one accepts what leaves it free enough and declines the rest. Low priority
  and short sequences go first; if a request waits for memory, the smallest that frees enough. This one rule gives
  balance, room for a large request that waits, and isolation of high priority, because freeness counts the demand of
  the queue's head and the head room of high priority.
- Promise: a promise would be broken here, and all are kept if a request leaves (`engines.transfers.by_promise`).

What is little and what is much depends on how much requests grow (`Marks`). Room that is made for a request that waits
is to last: as much leaves as it takes to admit it and not to preempt anybody soon. If it was preempted itself, the
taker must keep as much, too, or another one would be preempted in its turn. For one that has not begun, a taker may be
filled up to ``give_below``: its client has seen nothing yet.

Damping. No taker is brought to where it would begin to give itself: it stays above its mark, and freer than the
giver, unless requests are stuck in the giver's queue. A request that came here rests, twice as long after each move, so
that in a life of T seconds it moves at most about log2(T / rest_s) times.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from engines.engine_request import EngineRequest
from engines.scheduling.backlog import ToldPrefill
from engines.scheduling.service import Service
from engines.transfers.by_promise import Foreseen, better_move, late_prompt
from engines.transfers.freeness import growth_tokens, in_all, with_one_less, with_one_more
from engines.transfers.move_cost import MoveCosts
from engines.transfers.peers import Peer, Peers
from mesh.rules import Trigger
from mesh.topology.schema import Rescheduling
from mesh.wire.control import Role
from mesh.wire.status import EngineStatus

MOST_AT_A_TIME = 4  # that leave because they must: the engine is emptied, or does not decode any more


@dataclass(frozen=True, slots=True)
class Move:
    """A request that is to move. ``min_freeness`` is what must be left to the taker; None: it does not matter."""

    service: Service
    request: EngineRequest
    to: str
    reason: str
    min_freeness: float | None = None
    must_leave: bool = False


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A request that has not begun, and that its gateway is to dispatch anew."""

    request: EngineRequest
    reason: str


@dataclass(frozen=True, slots=True)
class OwnEngine:
    """What the rules need of their own engine."""

    id: str
    services: Mapping[str, Service]
    movable: Callable[[Service], Iterable[EngineRequest]]
    leaving: Callable[[], list[tuple[str, EngineRequest]]]  # migrations that have not ended, and where to
    freeness: Callable[[Service, float], float]
    physical_freeness: Callable[[Service, float], float]  # the same without head room for high priority
    head: Callable[[Service, float], EngineRequest | None]  # the request that waits first
    prefills: Callable[[float], Sequence[ToldPrefill]]  # that are not done, those that are due first first
    may_withdraw: Callable[[EngineRequest], bool]  # it has not begun
    costs: MoveCosts


@dataclass(frozen=True, slots=True)
class Marks:
    """Below what freeness engines give, and above what they take: the topology's, or more if requests grow by more.

    Until one of them ends, an engine's requests are expected to generate ``growth_tokens`` together. Who has that much
    room need preempt nobody; who has twice as much can spare some.
    """

    rules: Rescheduling
    growth_tokens: float

    def give_below(self, num_running: int) -> float:
        return max(self.rules.give_below, self.growth_tokens / max(1, num_running))

    def take_above(self, num_running: int) -> float:
        return max(self.rules.take_above, 2 * self.growth_tokens / max(1, num_running))


class Rescheduler:
    """One engine's rules. Without ``rules`` requests only move when it ``is_emptying`` and ``migrates_on_drain``."""

    def __init__(
        self, here: OwnEngine, peers: Peers, rules: Rescheduling | None, *, migrates_on_drain: bool = True
    ) -> None:
        self.is_emptying = False
        self._migrates_on_drain = migrates_on_drain
        self._here = here
        self._peers = peers
        self._rules = rules
        self._looks_at = -inf
        self._num_withdrawn = 0  # at this look
        self._foreseen = Foreseen(here.services, here.prefills, here.costs, self._for)

    def observe(self, engine: str, status: EngineStatus, now: float) -> bool:
        """Take another engine's status. Return whether to look for moves now."""
        self._peers.observe(engine, status)
        return self.must_leave() or (self._rules is not None and now >= self._looks_at)

    def must_leave(self) -> bool:
        """Return whether there is something here that is to go, whatever the rules say."""
        if self.is_emptying:
            return True
        for service in self._here.services.values():  # noqa: SIM110 - it is asked twice an event
            if service.is_leaving:
                return True
        return False

    def next_move(self, role: Role, now: float) -> Move | Withdrawal | None:
        """Ask again after each: what is on its way changes what is next."""
        self._peers.forgive(now)
        if self.is_emptying:
            return next(self._emptying(), None) if self._migrates_on_drain else None
        if move := next(self._unloaded(), None):
            return move
        rules = self._rules
        if rules is None:
            return None
        if role is Role.PREFILL and Trigger.ROLE in rules.triggers and (move := next(self._misplaced(), None)):
            return move
        if now < self._looks_at:
            return None
        found: Move | Withdrawal | None = None
        if len(self._here.leaving()) < rules.at_a_time:
            found = next(self._by_rules(rules, role, now), None)
        if found is None and Trigger.PROMISE in rules.triggers and self._num_withdrawn < rules.at_a_time:
            found = self._late(rules, now)
        if found is None:
            self._looks_at, self._num_withdrawn = now + rules.interval_s, 0
        return found

    def _by_rules(self, rules: Rescheduling, role: Role, now: float) -> Iterator[Move]:
        if Trigger.PROMISE in rules.triggers:
            yield from self._in_need(rules, now)
        if Trigger.LOAD not in rules.triggers:
            return
        for service in self._here.services.values():
            rested = [one for one in self._here.movable(service) if _has_rested(one, rules.rest_s, now)]
            if not rested:
                continue
            peers = [peer for peer in self._for(service) if peer.decodes or role is Role.PREFILL]
            yield from self._too_many(rules, service, rested, peers, now)

    # --- promises -----------------------------------------------------------------------------------------------------

    def _in_need(self, rules: Rescheduling, now: float) -> Iterator[Move]:
        """A move that keeps promises which would be broken."""
        rested = {
            name: [one for one in self._here.movable(service) if _has_rested(one, rules.rest_s, now)]
            for name, service in self._here.services.items()
        }
        better = better_move(self._foreseen, rested, Counter(to for to, _ in self._here.leaving()), now)
        if better is not None:
            reason = f"keeps {better.num_kept} promises, with {better.spare_s * 1e3:.0f} ms to spare there"
            yield Move(better.service, better.request, better.to, reason)

    def _late(self, rules: Rescheduling, now: float) -> Withdrawal | None:
        """A prompt that would be late here and in time elsewhere. Each further time, it stays longer before that."""

        def may_go(request: EngineRequest) -> bool:
            num_before = min(request.epoch.attempt, 32)
            has_stayed = now - request.came_at >= rules.interval_s * ((1 << num_before) - 1)
            return has_stayed and self._here.may_withdraw(request)

        late = late_prompt(self._foreseen, may_go, now)
        if late is None:
            return None
        self._num_withdrawn += 1
        early_ms = late.early_s * 1e3
        reason = (
            f"its first token would come {late.late_s:.2f} s too late, and {early_ms:.0f} ms early on {late.engine}"
        )
        return Withdrawal(late.request, reason)

    # --- what must leave ----------------------------------------------------------------------------------------------

    def _emptying(self) -> Iterator[Move]:
        """To the engine with most free blocks, of those that have enough; to prefill engines only if no other has."""
        return self._leaving("the engine is emptied", lambda peer: True)

    def _unloaded(self) -> Iterator[Move]:
        return self._leaving("the service is unloaded", lambda peer: True, concerns=lambda service: service.is_leaving)

    def _misplaced(self) -> Iterator[Move]:
        return self._leaving(
            "the engine only prefills", lambda peer: peer.decodes, of=lambda request: not request.stays
        )

    def _leaving(
        self,
        reason: str,
        may_take: Callable[[Peer], bool],
        concerns: Callable[[Service], bool] = lambda _: True,
        of: Callable[[EngineRequest], bool] = lambda _: True,
    ) -> Iterator[Move]:
        if len(self._here.leaving()) >= MOST_AT_A_TIME:
            return
        for service in filter(concerns, self._here.services.values()):
            movable = list(filter(of, self._here.movable(service)))
            peers = [peer for peer in self._for(service) if may_take(peer)] if movable else []
            for request in movable:
                wanted = self._peers.num_blocks(service, request)
                fitting = [peer for peer in peers if peer.num_free_blocks >= wanted]
                if fitting:
                    best = max(fitting, key=lambda peer: (peer.decodes, peer.num_free_blocks, peer.id))
                    yield Move(service, request, best.id, reason, must_leave=True)

    def _for(self, service: Service) -> list[Peer]:
        leaving = [(to, request) for to, request in self._here.leaving() if request.spec.service == service.name]
        return self._peers.for_service(service, leaving)

    # --- load ---------------------------------------------------------------------------------------------------------

    def _too_many(
        self, rules: Rescheduling, service: Service, rested: list[EngineRequest], peers: list[Peer], now: float
    ) -> Iterator[Move]:
        """Llumnix, section 4.4.3, decided by each giver for itself."""
        num_running, marks = len(service.queue.running), Marks(rules, growth_tokens(service.queue.running))
        free = self._here.freeness(service, now)
        mark = marks.give_below(num_running)
        if free >= mark:
            return
        taker = self._partner(marks, free, peers)
        if taker is None:
            return
        physical, there = self._here.physical_freeness(service, now), taker.service
        if physical >= mark:
            rested = [one for one in rested if one.spec.priority <= 0]  # the head room is for the others
        stuck = self._here.head(service, now) if physical < 0 else None
        lacking = 0.0 if stuck is None else mark * max(1, num_running) - in_all(physical, num_running)
        for num_tokens, request in _in_order(rested, service.pool.block_size, lacking):
            left_here = with_one_less(free, num_running, num_tokens)
            left_there = with_one_more(taker.freeness, there.num_running, num_tokens)
            enough = _enough(marks, there.num_running + 1, left_here, stuck)
            if left_there >= enough and taker.num_free_blocks >= self._peers.num_blocks(service, request):
                reason = f"freeness is {free:.0f} here, {taker.freeness:.0f} there"
                yield Move(service, request, taker.id, reason, enough)

    def _partner(self, marks: Marks, free: float, peers: list[Peer]) -> Peer | None:
        """The taker of this engine's rank among the givers, the least free one first."""
        givers = [peer for peer in peers if peer.freeness < marks.give_below(peer.service.num_running)]
        takers = [peer for peer in peers if peer.freeness > marks.take_above(peer.service.num_running)]
        takers.sort(key=lambda peer: (-peer.freeness, peer.id))
        mine = (free, self._here.id)
        rank = sum((peer.freeness, peer.id) < mine for peer in givers)
        return takers[rank] if rank < len(takers) else None


def _enough(marks: Marks, num_there: int, left_here: float, stuck: EngineRequest | None) -> float:
    """Freeness that must be left to a taker that runs ``num_there`` then."""
    if stuck is None:
        return max(marks.give_below(num_there), left_here)
    return marks.give_below(num_there) if stuck.num_generated else marks.rules.give_below


def _in_order(rested: list[EngineRequest], block_size: int, lacking: float) -> list[tuple[int, EngineRequest]]:
    """With the tokens that each frees: low priority first, then the shortest.

    If tokens are lacking for a request that waits: the smallest that frees so many, and if none does, the largest.
    """

    def order(pair: tuple[int, EngineRequest]) -> tuple[int, bool, int]:
        num_tokens, request = pair
        is_enough = num_tokens >= lacking
        return request.spec.priority, not is_enough, num_tokens if is_enough else -num_tokens

    return sorted([(len(request.blocks) * block_size, request) for request in rested], key=order)


def _has_rested(request: EngineRequest, rest_s: float, now: float) -> bool:
    num_moves = min(request.epoch.hop, 32)
    return now - request.came_at >= rest_s * ((1 << num_moves) - 1)
