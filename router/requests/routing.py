"""Asks the policy which engine gets which waiting request, and keeps what it decided."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf

import msgspec

from mesh.prefix_names import prefix_names
from mesh.wire.control import Role
from mesh.wire.requests import Recall, Submit
from mesh.wire.status import Wanted
from router.effects import Effect, SendToEngine, SetRoute, in_batches
from router.generation import Fault, NoEngines, RequestFailed, RouterError
from router.history.timeline import Seen
from router.history.timelines import Timelines
from router.policies.capabilities import (
    AllowsLateness,
    FlipsRoles,
    FollowsRequests,
    PlansRounds,
    RecallsRequests,
    ReordersQueue,
    UsesLengths,
    UsesPrefixes,
    WantsEngines,
)
from router.policies.least_loaded import LeastLoaded
from router.policies.parts.least_filled import LeastFilled
from router.policies.parts.own_part import OwnPart
from router.policies.policy import Decision, Dispatch, GiveUp, Policy, Reject, Wait
from router.requests.breakers import Breakers
from router.requests.in_flight_request import InFlightRequest
from router.requests.in_flight_requests import InFlightRequests
from router.requests.limits import DispatchLimits
from router.requests.links import Links
from router.requests.overload.fairness import Fairness, SharedEngines
from router.requests.overload.shedding import MIN_RETRY_AFTER_S, Shedding, overloaded
from router.view.canary_shares import Shares
from router.view.cluster_view import ClusterView
from router.view.engine_view import RequestView
from router.view.known_prefixes import KnownPrefixes
from router.view.monitor import Monitor

RECALL_S = 0.1  # between two looks for requests to call back
EVERYBODY: Sequence[set[str]] = (set(),)
TRIES_PER_ROUND = 32  # waiting requests of a service that are tried in vain on one change, most urgent first


class Routing:
    """Dispatches what waits. Another policy may be adopted at any time: what was sent stays where it is."""

    def __init__(
        self,
        policy: Policy,
        in_flight: InFlightRequests,
        monitor: Monitor,
        breakers: Breakers,
        links: Links,
        limits: DispatchLimits,
        timelines: Timelines,
        fairness: Fairness,
        shares: Shares | None = None,
    ) -> None:
        """Make one. ``shares``: of engines by their weights; None: all have the same."""
        self._shares = Shares({}) if shares is None else shares
        self._last_resort = LeastLoaded()
        self._own_part = OwnPart()
        self._filling = LeastFilled()
        self._in_flight = in_flight
        self._monitor = monitor
        self._breakers = breakers
        self._links = links
        self._limits = limits
        self._timelines = timelines
        self._fairness = fairness
        self.holds_back = False  # something waits for its tenant's share alone
        self.prefixes = KnownPrefixes(monitor)
        self._shedding = Shedding()
        self._recalls_at = -inf
        self.adopt(policy)

    def __repr__(self) -> str:
        return f"<Routing by {self.policy.name}>"

    def adopt(self, policy: Policy) -> None:
        """Decide by this policy from now on."""
        self.policy = policy
        self._queue_order = policy.offers(ReordersQueue)
        self._rounds = policy.offers(PlansRounds)
        self._roles = policy.offers(FlipsRoles)
        self._recalls = policy.offers(RecallsRequests)
        self.asked_lengths = policy.offers(UsesLengths)
        self._uses_prefixes = policy.offers(UsesPrefixes) is not None
        lateness, follows = policy.offers(AllowsLateness), policy.offers(FollowsRequests)
        self.grace_s = 0.0 if lateness is None else lateness.grace_s
        self._in_flight.on_left = None if follows is None else follows.left

    def take(self, request: InFlightRequest, now: float) -> list[Effect]:
        """A request came and waits: dispatch what can be, refuse who waits in vain, make way for a tenant that came."""
        if request.spec.is_filler:
            effects = self.fill(now)
        else:
            if self._uses_prefixes and request.spec.pooling is None:
                request.hints.prefix = prefix_names(request.spec.prompt, request.spec.prefix_salt)
            is_of_newcomer = self._fairness.has_one_only(request.charge.tenant)
            effects = [*self.try_waiting(now), *self.shed(request.spec.service, now)]
            effects += self._make_way(request.spec.service) if is_of_newcomer else []
        self._in_flight.arm(request, now)
        return effects

    def shed(self, service: str, now: float) -> list[Effect]:
        """Refuse those that wait for their deadlines in vain. What had begun, or may be late, is not among them."""
        waiting = [request for request in self._in_flight.waiting if request.spec.service == service]
        if not waiting:
            return []
        new = [request.view for request in waiting if not request.losses.is_recovering and not request.deadline.grace_s]
        hopeless = {request_id.id for request_id in self._shedding.hopeless(new, now)} if new else ()
        reason = f"{len(waiting)} requests wait, and not all can be served in time"
        tenants = self._fairness.above_their_share(waiting) if hopeless else ()
        return [
            self._in_flight.fail(request, overloaded(self._monitor.view(), service, reason, now), now)
            for request in waiting
            if request.id in hopeless and request.charge.tenant in tenants
        ]

    def forget(self, engine: str) -> None:
        """Forget an engine whose caches are gone."""
        self._links.forget(engine)
        self.prefixes.forget(engine)

    def recall(self, now: float) -> list[Effect]:
        """Ask engines to give back what has not begun there and had better go elsewhere. Each is asked for once."""
        if self._recalls is None or now < self._recalls_at:
            return []
        self._recalls_at = now + RECALL_S
        not_begun: defaultdict[str, list[RequestView]] = defaultdict(list)
        for request in self._in_flight.promised:
            if request.may_be_recalled:
                not_begun[request.engines[-1]].append(request.view)
        effects: list[Effect] = []
        for request_id in self._recalls.recall(not_begun, self._monitor.view(), now):
            if (found := self._in_flight.placed(request_id.id)) is not None:
                found.assignment.was_recalled = True
                effects.append(SendToEngine(found.engines[0], Recall(found.id, found.assignment.any_epoch)))
        return effects

    def _make_way(self, service: str) -> list[Effect]:
        """A tenant came to others that are here: what engines have of those above their shares comes back."""
        view = self._monitor.view()
        if not self._fairness.is_shared or self._rounds is not None:
            return []
        self._fairness.count(self._in_flight.promised)
        of_service = [request for request in self._in_flight.promised if request.spec.service == service]
        effects: list[Effect] = []
        for request in self._fairness.recalled(of_service, _shared_engines(view, service)):
            request.assignment.was_recalled = True
            effects.append(SendToEngine(request.engines[0], Recall(request.id, request.assignment.any_epoch)))
        return effects

    def wanted(self, now: float) -> list[Wanted]:
        """Engines that those that wait would fill."""
        waiting = [request.view for request in self._in_flight.waiting]
        wants = self.policy.offers(WantsEngines)
        return list(wants.wanted(waiting, self._monitor.view(), now)) if wants is not None and waiting else []

    # --- decisions ----------------------------------------------------------------------------------------------------

    def try_waiting(self, now: float, max_in_vain: int = TRIES_PER_ROUND) -> list[Effect]:
        """Dispatch what can be dispatched, earliest deadline first."""
        effects: list[Effect] = []
        if not self._in_flight.waiting:
            return self.fill(now)
        num_in_vain: defaultdict[str, int] = defaultdict(int)  # by service: none takes the turns of another
        view: ClusterView | None = None
        held: set[tuple[str, str]] = set()  # services and tenants, to the end of this round
        for request in self._in_turn(now) if self._is_open(now) else self._overdue(now):
            service = request.spec.service
            if num_in_vain[service] >= max_in_vain:
                continue
            view = view or self._monitor.view()
            whose = service, request.charge.tenant
            if not request.losses.is_recovering and (whose in held or self._holds(request, view)):
                held.add(whose)
                request.queue.was_held = True
                continue
            decision = self._decide(request, view, now)
            if isinstance(decision, Wait):
                num_in_vain[service] += 1
            else:
                effects += self._carry_out(request, decision, now)
                view = None
        self.holds_back = bool(held)
        effects = [*in_batches(effects), *self.fill(now)]
        if self._roles is None:
            return effects
        changes = self._roles.rebalance(view or self._monitor.view(), num_in_vain, now)
        return [*effects, *(SendToEngine(change.engine, change.message) for change in changes)]

    def fill(self, now: float) -> list[Effect]:
        """Send requests without promises where there is something to spare, those first whose time is over first."""
        effects: list[Effect] = []
        if not self._in_flight.num_fillers:
            return effects
        if self._in_flight.filling:
            self._filling.count(one.engines[0] for one in self._in_flight.fillers if one.engines and not one.has_begun)
        full: set[str] = set()  # services
        for request in self._in_flight.filling:
            if request.spec.service in full:
                continue
            decision = self._decide(request, self._monitor.view(), now)
            if isinstance(decision, Wait):
                full.add(request.spec.service)
            else:
                effects += self._carry_out(request, decision, now)
        return effects

    def _is_open(self, now: float) -> bool:
        return self._rounds is None or self._rounds.is_open(self._monitor.view(), now)

    def next_opening(self) -> float | None:
        """Return when to `try_waiting` though nothing changes."""
        return self._rounds.opens_at if self._rounds is not None and self._in_flight.waiting else None

    def _ranked(self, now: float) -> Sequence[InFlightRequest]:
        """Those that wait, in the policy's order."""
        if self._queue_order is None:
            return list(self._in_flight.waiting)
        waiting = {request.id: request for request in self._in_flight.waiting}
        views = [request.view for request in waiting.values()]
        return [waiting[view.id] for view in self._queue_order.rank(views, self._monitor.view(), now)]

    def _in_turn(self, now: float) -> Iterable[InFlightRequest]:
        """Those that wait, as their tenants share what there is."""
        ranked = self._ranked(now)
        if not self._fairness.is_shared:
            return ranked
        self._fairness.count(self._in_flight.promised)
        return self._fairness.in_turn(ranked)

    def _holds(self, request: InFlightRequest, view: ClusterView) -> bool:
        """Static batches, which policies form at times of their own, are not taken apart."""
        if not self._fairness.is_shared or self._rounds is not None:
            return False
        return self._fairness.holds(request, _shared_engines(view, request.spec.service))

    def _overdue(self, now: float) -> Iterable[InFlightRequest]:
        """Those that wait for no round of the policy."""
        return [request for request in self._in_flight.waiting if self._is_overdue(request, now)]

    def _is_overdue(self, request: InFlightRequest, now: float) -> bool:
        """Had begun, and the promise of its next token is over: it goes wherever it can. But a slice is had in turn."""
        is_in_turn = request.queue.has_slice_ended and self._rounds is not None
        return request.losses.is_recovering and now >= request.deadline.at and not is_in_turn

    def _decide(self, request: InFlightRequest, view: ClusterView, now: float) -> Decision:
        policy = self._policy_for(request, now)
        avoided, broken = request.losses.avoids(now), self._broken(request, view, now)
        if request.losses.failed_on:
            serving = [engine.id for engine in view.serving(request.spec.service) if engine.id not in broken]
            avoided |= request.losses.to_avoid(serving)
        view = view.without(avoided | broken)
        if request.spec.pooling is not None:  # it ends with its prompt, wherever that is computed
            view = view.keeping(request.spec.service)
        seen_request = request.view
        if request.hints.prefix:
            warm = self.prefixes.warm(seen_request.service, request.hints.prefix)
            seen_request = msgspec.structs.replace(seen_request, **warm._asdict())
        for left_out in self._trials(request, view):
            decision, seen_view = self._decide_within(
                policy, seen_request, request, view.without(left_out), avoided, now
            )
            if isinstance(decision, Dispatch):
                break
        if isinstance(decision, Dispatch) and decision.prefill_engine in seen_request.pullable:
            decision = msgspec.structs.replace(decision, prefix_at=seen_request.pullable[decision.prefill_engine])
        may_wait = avoided or broken or request.losses.is_recovering
        may_wait = may_wait or (request.view.may_be_late and isinstance(decision, GiveUp))
        if may_wait and isinstance(decision, Reject | GiveUp):
            why = "it would be late" if isinstance(decision, GiveUp) else decision.reason
            decision = Wait(f"{why}, of the engines that it can be sent to now")
        if not isinstance(decision, Wait) or decision.reason != request.queue.reason:
            seen = Seen(now, seen_request, seen_view, avoided, broken)
            self._timelines.decided(request.timeline, request.assignment.attempt + 1, policy.name, decision, seen)
        if isinstance(decision, Wait):
            request.queue.reason = decision.reason
        return decision

    def _policy_for(self, request: InFlightRequest, now: float) -> Policy:
        if request.spec.is_filler:
            return self._filling
        return self._last_resort if self._is_overdue(request, now) else self.policy

    def _trials(self, request: InFlightRequest, view: ClusterView) -> Sequence[set[str]]:
        """Which engines to leave out for their weights, one time after the other."""
        if self._shares.are_even:
            return EVERYBODY
        return self._shares.trials([engine.id for engine in view.serving(request.spec.service)])

    def _decide_within(
        self,
        policy: Policy,
        seen_request: RequestView,
        request: InFlightRequest,
        view: ClusterView,
        avoided: set[str],
        now: float,
    ) -> tuple[Decision, ClusterView]:
        """Decide among the engines of this view. Those that the others do not reach are ``avoided`` from then on."""
        decision, seen_view = self._ask(policy, seen_request, view, now)
        while isinstance(decision, Dispatch) and (engine := self._in_the_way(decision, request, view, now)) is not None:
            avoided.add(engine)
            view = view.without({engine})
            decision, seen_view = self._ask(policy, seen_request, view, now)
        return decision, seen_view

    def _ask(self, policy: Policy, request: RequestView, view: ClusterView, now: float) -> tuple[Decision, ClusterView]:
        """Return the policy's decision, and the view that it was made from."""
        if self._monitor.may_be_late and policy is not self._filling:
            return self._own_part.decide(policy, request, view, now)
        return policy.decide(request, view, now), view

    def _in_the_way(self, dispatch: Dispatch, request: InFlightRequest, view: ClusterView, now: float) -> str | None:
        """Return the engine without which to decide again, as the other one does not reach it."""
        if dispatch.decode_engine == dispatch.prefill_engine or self._links.all_whole:
            return None
        return self._links.in_the_way(dispatch, view.serving(request.spec.service), now)

    def _broken(self, request: InFlightRequest, view: ClusterView, now: float) -> set[str]:
        """Engines whose breakers let nothing through."""
        if self._breakers.all_closed:
            return set()
        return self._breakers.blocked([engine.id for engine in view.serving(request.spec.service)], now)

    def _carry_out(self, request: InFlightRequest, decision: Dispatch | Reject | GiveUp, now: float) -> list[Effect]:
        if isinstance(decision, Reject):
            return [self._in_flight.fail(request, RequestFailed(decision.reason, Fault.CLIENT), now)]
        if isinstance(decision, GiveUp):
            error = overloaded(self._monitor.view(), request.spec.service, decision.reason, now)
            return [self._in_flight.fail(request, error, now)]
        submit = self._leave_queue(request, decision, now)
        self._breakers.sent(request.id, request.engines, now)
        self._shares.dispatched(decision.prefill_engine)
        self._links.sent(decision, now)
        hints = request.hints
        hints.brought = self.prefixes.sent(request.spec.service, hints.prefix, request.engines)
        self._in_flight.arm(request, now)
        send = SendToEngine(decision.prefill_engine, submit, decision.batch)
        assert request.timeline.route is not None, "it was decided about"
        return [SetRoute(request.id, request.timeline.route), send]

    def _leave_queue(self, request: InFlightRequest, decision: Dispatch, now: float) -> Submit:
        if request.spec.is_filler:
            self._in_flight.filling.remove(request)
            self._filling.sent(decision.prefill_engine)
            return request.send(decision, now)
        self._in_flight.waiting.remove(request)
        self._shedding.dispatched(request.view, self._num_waiting(request.spec.service), now)
        self._fairness.dispatched(request, decision)
        submit = request.send(decision, now)
        self._monitor.reserve(request.reservations(decision, now))
        return submit

    def _num_waiting(self, service: str) -> int:
        return sum(request.spec.service == service for request in self._in_flight.waiting)

    # --- what cannot be placed ----------------------------------------------------------------------------------------

    def end_expired(self, now: float) -> list[Effect]:
        """Rule 4: what has waited for too long is rejected, once it was tried for the last time."""
        effects: list[Effect] = []
        for request in [*self._in_flight.waiting, *self._in_flight.filling]:
            if request.losses.is_recovering and self._could_run(request):
                request.queue.engine_seen_at = now
            if now >= request.expires_at(self._limits):
                effects.append(self._in_flight.fail(request, self._too_late(request, now), now))
        return effects

    def _could_run(self, request: InFlightRequest) -> bool:
        """Whether an engine is there that could take it, had it room."""
        view = request.view
        return self._monitor.view().candidates(view.service, view.num_tokens + 1) is not None

    def _too_late(self, request: InFlightRequest, now: float) -> RouterError:
        service = request.spec.service
        if not (view := self._monitor.view()).serving(service):
            return NoEngines(view.why_unserved(service), MIN_RETRY_AFTER_S)
        waited_s = now - request.timeline.arrived_at
        reason = f"no engine could take the request within {waited_s:.1f} s"
        return overloaded(self._monitor.view(), service, reason, now)


def _shared_engines(view: ClusterView, service: str) -> SharedEngines:
    """The engines among which a service's tenants have their shares."""
    serving = view.serving(service)
    prefilling = {engine.id for engine in serving if engine.role is not Role.DECODE}
    decoding = [engine for engine in serving if engine.role is not Role.PREFILL]
    places = [engine.max_running for engine in decoding]
    everybody = {engine.id for engine in serving}
    return SharedEngines(prefilling or everybody, everybody, sum(places) if all(places) else 0)
