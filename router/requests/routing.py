"""Which engine gets which waiting request: asks the policy, and keeps what it decided."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import inf

import msgspec

from mesh.wire.control import Role
from mesh.wire.requests import Recall
from mesh.wire.status import Wanted
from router.effects import Effect, Place, Send, in_batches
from router.generation import Fault, NoEngines, Overloaded, RequestFailed, RouterError
from router.history.decisions import DecisionLog, Seen
from router.policies.least_loaded import LeastLoaded
from router.policies.policy import Decision, Dispatch, GiveUp, Policy, Reject, Wait
from router.requests.breakers import Breakers
from router.requests.fairness import Fairness
from router.requests.in_flight_request import Flight, Phase
from router.requests.in_flight_requests import Flights
from router.requests.limits import DispatchLimits
from router.requests.shedding import Shedding
from router.view.cluster_view import ClusterView
from router.view.engine_view import RequestView
from router.view.monitor import Monitor
from router.view.prefixes import PrefixIndex
from router.view.prompt_hashes import full_block_hashes

RECALL_S = 0.1  # between two looks for requests to call back
TRIES_PER_ROUND = 32  # waiting requests of a service that are tried in vain on one change, most urgent first
MIN_RETRY_AFTER_S, MAX_RETRY_AFTER_S = 1.0, 60.0


class Placing:
    """Dispatches what waits. ``policy`` may be exchanged at any time: what was sent stays where it is."""

    def __init__(
        self,
        policy: Policy,
        flights: Flights,
        monitor: Monitor,
        breakers: Breakers,
        limits: DispatchLimits,
        decisions: DecisionLog,
        fairness: Fairness,
    ) -> None:
        self.policy = policy
        self._last_resort = LeastLoaded()
        self._flights = flights
        self._monitor = monitor
        self._breakers = breakers
        self._limits = limits
        self._decisions = decisions
        self._fairness = fairness
        self.holds_back = False  # something waits for its tenant's share alone
        self._prefixes: defaultdict[str, PrefixIndex] = defaultdict(PrefixIndex)  # by service
        self._shedding = Shedding()
        flights.on_left = self._left
        self._recalls_at = -inf

    def __repr__(self) -> str:
        return f"<Placing by {self.policy.name}>"

    def hash_prefix(self, flight: Flight) -> None:
        """Name the blocks of its prompt, if the policy asks what engines have of them."""
        if self.policy.uses_prefixes:
            flight.prefix = full_block_hashes(flight.spec.prompt)

    def shed(self, service: str, now: float) -> list[Effect]:
        """Refuse those that wait for their deadlines in vain. What had begun, or may be late, is not among them."""
        waiting = [flight for flight in self._flights.waiting if flight.spec.service == service]
        if not waiting:
            return []
        new = [flight.request for flight in waiting if not flight.is_recovering and not flight.grace_s]
        hopeless = {request.id for request in self._shedding.hopeless(new, now)} if new else ()
        reason = f"{len(waiting)} requests wait, and not all can be served in time"
        tenants = self._fairness.above_their_share(waiting) if hopeless else ()
        return [
            self._flights.fail(flight, self.overloaded(service, reason, now), now)
            for flight in waiting
            if flight.id in hopeless and flight.tenant in tenants
        ]

    def forget(self, engine: str) -> None:
        """Its caches are gone."""
        for prefixes in self._prefixes.values():
            prefixes.forget(engine)

    def recall(self, now: float) -> list[Effect]:
        """Ask engines to give back what has not begun there and had better go elsewhere. Each is asked for once."""
        if not self.policy.recalls or now < self._recalls_at:
            return []
        self._recalls_at = now + RECALL_S
        not_begun: defaultdict[str, list[RequestView]] = defaultdict(list)
        for flight in self._flights:
            if flight.phase is Phase.RUNNING and flight.first_token_at is None and not flight.was_recalled:
                not_begun[flight.engines[-1]].append(flight.request)
        effects: list[Effect] = []
        for request in self.policy.recall(not_begun, self._monitor.view(), now):
            if (found := self._flights.placed(request.id)) is not None:
                found.was_recalled = True
                effects.append(Send(found.engines[0], Recall(found.id, found.any_epoch)))
        return effects

    def make_way(self, service: str) -> list[Effect]:
        """A tenant came to others that are here: what engines have of those above their shares comes back."""
        view = self._monitor.view()
        if not self._fairness.is_shared or self.policy.opens_at is not None:
            return []
        self._fairness.count(self._flights)
        of_service = [flight for flight in self._flights if flight.spec.service == service]
        effects: list[Effect] = []
        for flight in self._fairness.recalled(of_service, self._num_prefilling(view, service)):
            flight.was_recalled = True
            effects.append(Send(flight.engines[0], Recall(flight.id, flight.any_epoch)))
        return effects

    def wanted(self, now: float) -> list[Wanted]:
        """Engines that those that wait would fill."""
        waiting = [flight.request for flight in self._flights.waiting]
        return list(self.policy.wanted(waiting, self._monitor.view(), now)) if waiting else []

    # --- decisions ----------------------------------------------------------------------------------------------------

    def try_waiting(self, now: float, max_in_vain: int = TRIES_PER_ROUND) -> list[Effect]:
        """Dispatch what can be dispatched, earliest deadline first."""
        effects: list[Effect] = []
        if not self._flights.waiting:
            return effects
        num_in_vain: Counter[str] = Counter()  # by service: none takes the turns of another
        view: ClusterView | None = None
        held: set[tuple[str, str]] = set()  # services and tenants, to the end of this round
        for flight in self._in_turn(now) if self._is_open(now) else self._overdue(now):
            service = flight.spec.service
            if num_in_vain[service] >= max_in_vain:
                continue
            view = view or self._monitor.view()
            whose = service, flight.tenant
            if not flight.is_recovering and (whose in held or self._holds(flight, view)):
                held.add(whose)
                flight.was_held = True
                continue
            decision = self._decide(flight, view, now)
            if isinstance(decision, Wait):
                num_in_vain[service] += 1
            else:
                effects += self._carry_out(flight, decision, now)
                view = None
        self.holds_back = bool(held)
        effects = in_batches(effects)
        if not self.policy.changes_roles:
            return effects
        changes = self.policy.rebalance(view or self._monitor.view(), num_in_vain.total(), now)
        return [*effects, *(Send(change.engine, change.message) for change in changes)]

    def _left(self, request: str) -> None:
        self.policy.left(request)

    def _is_open(self, now: float) -> bool:
        return self.policy.opens_at is None or now >= self.policy.opens_at

    def next_opening(self) -> float | None:
        """When to `try_waiting` though nothing changes."""
        return self.policy.opens_at if self._flights.waiting else None

    def _ranked(self, now: float) -> Sequence[Flight]:
        """Those that wait, in the policy's order."""
        waiting = {flight.id: flight for flight in self._flights.waiting}
        requests = [flight.request for flight in waiting.values()]
        return [waiting[request.id] for request in self.policy.rank(requests, self._monitor.view(), now)]

    def _in_turn(self, now: float) -> Iterable[Flight]:
        """Those that wait, as their tenants share what there is."""
        ranked = self._ranked(now)
        if not self._fairness.is_shared:
            return ranked
        self._fairness.count(self._flights)
        return self._fairness.in_turn(ranked)

    def _holds(self, flight: Flight, view: ClusterView) -> bool:
        """Static batches, which policies form at times of their own, are not taken apart."""
        if not self._fairness.is_shared or self.policy.opens_at is not None:
            return False
        return self._fairness.holds(flight, self._num_prefilling(view, flight.spec.service))

    def _num_prefilling(self, view: ClusterView, service: str) -> int:
        """Engines that prefill it."""
        serving = view.serving(service)
        return sum(engine.role is not Role.DECODE for engine in serving) or len(serving)

    def _overdue(self, now: float) -> Iterable[Flight]:
        """Those that wait for no round of the policy."""
        return [flight for flight in self._flights.waiting if self._is_overdue(flight, now)]

    def _is_overdue(self, flight: Flight, now: float) -> bool:
        """Had begun, and the promise of its next token is over: it goes wherever it can. But a slice is had in turn."""
        is_in_turn = flight.has_slice_ended and self.policy.opens_at is not None
        return flight.is_recovering and now >= flight.deadline and not is_in_turn

    def _decide(self, flight: Flight, view: ClusterView, now: float) -> Decision:
        policy: Policy = self._last_resort if self._is_overdue(flight, now) else self.policy
        avoided, broken = flight.avoids(now), self._broken(flight, view, now)
        view = view.without(avoided | broken)
        request = flight.request
        if flight.prefix:
            request = msgspec.structs.replace(
                request, cached=self._prefixes[request.service].cached_tokens(flight.prefix)
            )
        decision = policy.decide(request, view, now)
        if isinstance(decision, Reject | GiveUp) and (avoided or broken or flight.is_recovering):
            why = "it would be late" if isinstance(decision, GiveUp) else decision.reason
            decision = Wait(f"{why}, of the engines that it can be sent to now")
        if not isinstance(decision, Wait) or decision.reason != flight.wait_reason:
            seen = Seen(now, request, view, avoided, broken)
            self._decisions.decided(flight.attempt + 1, policy.name, decision, seen)
        if isinstance(decision, Wait):
            flight.wait_reason = decision.reason
        return decision

    def _broken(self, flight: Flight, view: ClusterView, now: float) -> set[str]:
        """Engines whose breakers let nothing through."""
        if self._breakers.all_closed:
            return set()
        return self._breakers.blocked([engine.id for engine in view.serving(flight.spec.service)], now)

    def _carry_out(self, flight: Flight, decision: Dispatch | Reject | GiveUp, now: float) -> list[Effect]:
        if isinstance(decision, Reject):
            return [self._flights.fail(flight, RequestFailed(decision.reason, Fault.CLIENT), now)]
        if isinstance(decision, GiveUp):
            return [self._flights.fail(flight, self.overloaded(flight.spec.service, decision.reason, now), now)]
        self._flights.waiting.remove(flight)
        self._shedding.dispatched(flight.request, self._num_waiting(flight.spec.service), now)
        self._fairness.dispatched(flight, decision.prefill_s)
        submit = flight.send(decision, now)
        self._monitor.reserve(flight.reservations(decision))
        self._breakers.sent(flight.id, flight.engines, now)
        service = flight.spec.service
        for engine in flight.engines if flight.prefix else ():
            pool = self._monitor.view().engines[engine].services[service]
            self._prefixes[service].add(flight.prefix, engine, pool.num_slots)
        self._flights.arm(flight, now)
        send = Send(decision.prefill_engine, submit, decision.batch)
        return [Place(flight.id, flight.placement(decision, now)), send]

    def _num_waiting(self, service: str) -> int:
        return sum(flight.spec.service == service for flight in self._flights.waiting)

    # --- what cannot be placed ----------------------------------------------------------------------------------------

    def end_expired(self, now: float) -> list[Effect]:
        """Rule 4: what has waited for too long is rejected, once it was tried for the last time."""
        effects: list[Effect] = []
        for flight in self._flights.waiting:
            if flight.is_recovering and self._could_run(flight):
                flight.engine_seen_at = now
            if now >= flight.expires_at(self._limits):
                effects.append(self._flights.fail(flight, self._too_late(flight, now), now))
        return effects

    def _could_run(self, flight: Flight) -> bool:
        """Whether an engine is there that could take it, had it room."""
        request = flight.request
        return self._monitor.view().candidates(request.service, request.num_tokens + 1) is not None

    def _too_late(self, flight: Flight, now: float) -> RouterError:
        service = flight.spec.service
        if not self._monitor.view().serving(service):
            return NoEngines(f"no engine is ready to serve {service}", MIN_RETRY_AFTER_S)
        waited_s = now - flight.arrived_at
        return self.overloaded(service, f"no engine could take the request within {waited_s:.1f} s", now)

    def overloaded(self, service: str, reason: str, now: float) -> Overloaded:
        """With a hint when to come back: when the first engine that prefills will have nothing queued."""
        serving = self._monitor.view().serving(service)
        prefilling = [engine for engine in serving if engine.role is not Role.DECODE] or serving
        backlog_s = min((engine.backlog_s(now) for engine in prefilling), default=0.0)
        return Overloaded(reason, min(max(backlog_s, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S))
