"""The life of requests in one gateway: waiting, dispatch, acceptance, tokens, recovery, end.

Theory of operation. A request waits, is sent to the engine that the policy chose (`router.requests.routing`), and runs
there once the engine accepted it. Refused, it waits again and avoids for a moment who refused. An engine that is
silent, or leaves a gap in its tokens, is asked (`router.requests.probing`). If it dies, has not got the request, or
does not answer, the request waits again with all tokens so far. It continues elsewhere under the next attempt, whose
epoch shuts out the old owner (`router.requests.recovery`). Events in (methods), effects out; time is passed in; no
sockets, no clock.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from mesh.membership.membership import Joined, Renewed, Restarted, Stale
from mesh.wire.control import ProcessState, RequestPlace
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineAnswer
from mesh.wire.requests import (
    Accepted,
    Failed,
    Held,
    Moved,
    NotHeld,
    Refused,
    RequestSpec,
    SlicesEnded,
    StepTokens,
)
from mesh.wire.status import EngineStatus, GatewayStatus, Wanted
from router.effects import Effect
from router.history.lengths import LengthPredictor
from router.history.records import Outcome
from router.history.timeline import RequestTimeline
from router.history.timelines import Timelines
from router.policies.capabilities import UsesLengths
from router.policies.policy import Policy
from router.requests.breakers import Breakers
from router.requests.in_flight_request import InFlightRequest
from router.requests.in_flight_requests import InFlightRequests
from router.requests.limits import DispatchLimits
from router.requests.links import Links
from router.requests.overload.fairness import Fairness
from router.requests.overload.places import GatewayPlaces
from router.requests.ownership import Ownership
from router.requests.recovery import Recovery
from router.requests.request_state import RequestPhase
from router.requests.routing import Routing
from router.view.canary_shares import Shares
from router.view.monitor import Monitor

MAX_LOCATED = 64


class Dispatcher:
    """Owns the requests of one gateway. Every event returns the effects that the shell has to carry out, in order."""

    def __init__(
        self,
        policy: Policy,
        monitor: Monitor,
        limits: DispatchLimits,
        timelines: Timelines,
        lengths: LengthPredictor | None = None,
        weights: Mapping[str, float] = MappingProxyType({}),
        *,
        engine_lengths: UsesLengths | None = None,
    ) -> None:
        """Make one. ``weights``: of engines with less than an equal share. ``engine_lengths``: that engines look at."""
        self.timelines = timelines
        self.breakers = Breakers()
        self._monitor = monitor
        self._limits = limits
        self.lengths = LengthPredictor() if lengths is None else lengths
        self._engine_lengths = engine_lengths
        fairness = Fairness()
        self._in_flight = InFlightRequests(limits, monitor, self.breakers, timelines, self.lengths, fairness)
        links = Links()
        self._places = GatewayPlaces(self._in_flight, limits, fairness, monitor)
        self._routing = Routing(
            policy, self._in_flight, monitor, self.breakers, links, limits, timelines, fairness, Shares(weights)
        )
        self.prefixes = self._routing.prefixes
        self._recovery = Recovery(self._in_flight, monitor, self.breakers, links, limits)
        self._ownership = Ownership(self._in_flight, monitor, self.breakers, links, timelines, self._recovery)

    def __repr__(self) -> str:
        return f"<Dispatcher {self._in_flight!r}>"

    @property
    def num_requests(self) -> int:
        return len(self._in_flight)

    @property
    def num_filling(self) -> int:
        """Return how many requests without promises wait for an engine with something to spare."""
        return len(self._in_flight.filling)

    @property
    def num_waiting(self) -> int:
        return len(self._in_flight.waiting)

    def num_by_service(self) -> Counter[str]:
        """Return how many requests of each service are in flight, those that wait among them."""
        return Counter(request.spec.service for request in self._in_flight.promised)

    def num_waiting_by_service(self) -> Counter[str]:
        return Counter(request.spec.service for request in self._in_flight.waiting)

    def wanted(self, now: float) -> list[Wanted]:
        """Engines that those that wait would fill, if the policy knows."""
        return self._routing.wanted(now)

    def locate(self, is_meant: Callable[[str], bool]) -> list[RequestPlace]:
        """Say where the requests are whose ids are meant, newest first; those that have ended, too."""
        return [self._place(timeline) for timeline in self.timelines.find(is_meant)[:MAX_LOCATED]]

    def _place(self, timeline: RequestTimeline) -> RequestPlace:
        request = self._in_flight.placed(timeline.id)
        is_held = request is not None and request.assignment.phase is RequestPhase.RUNNING
        return RequestPlace(timeline.id, request.engines[0] if request and is_held else None, timeline.reason)

    # --- events of consumers ------------------------------------------------------------------------------------------

    def submit(self, spec: RequestSpec, timeline: RequestTimeline, now: float, tenant: str = "") -> list[Effect]:
        """Take a new request. Raises `Overloaded` if a bound is reached, `ValueError` if its id is in flight.

        ``timeline``: its own, newly begun; the caller ends it if this raises. ``tenant``: whose the request is, where
        several share what there is.
        """
        if spec.id in self._in_flight:
            raise ValueError(f"request {spec.id} is in flight already")
        effects = self._places.make(spec, tenant, now)
        prediction = self.lengths.predict(spec)
        if not spec.is_filler and (asked := self._asked_lengths()) is not None:
            spec = self.lengths.foretell(spec, prediction, asked.quantile, asked.least)
        request = InFlightRequest.of(spec, timeline, self._routing.grace_s, prediction, tenant)
        self._in_flight.add(request)
        self._recovery.probing.begin(now)
        return [*effects, *self._routing.take(request, now)]

    def _asked_lengths(self) -> UsesLengths | None:
        """Return what the policy or the engines ask of answers' lengths."""
        return self._routing.asked_lengths or self._engine_lengths

    def cancel(
        self, request_id: str, now: float, outcome: Outcome = Outcome.CANCELLED, reason: str = "no longer wanted"
    ) -> list[Effect]:
        """The consumer has what it wanted of it, or will not take it. Unknown requests are ignored."""
        request = self._in_flight.get(request_id)
        if request is None:
            return []
        has_engine = not request.assignment.is_waiting
        effects = self._recovery.stop(request)
        self._in_flight.leave(request, outcome, reason, now)
        return [*effects, *self._routing.try_waiting(now)] if has_engine else effects

    def switch(self, policy: Policy, now: float) -> list[Effect]:
        """Decide by this policy from now on, first about all that wait. What was sent stays where it is."""
        self._routing.adopt(policy)
        asked = self._asked_lengths()
        for request in self._in_flight.promised:
            request.queue.reason = ""
            request.deadline.follow(request.spec.late, self._routing.grace_s)
            spec = request.spec
            if asked is not None:
                spec = self.lengths.foretell(spec, request.hints.answer, asked.quantile, asked.least)
            request.foretell(spec)
            self._in_flight.arm(request, now)
        return self._routing.try_waiting(now, self.num_waiting)

    # --- events of engines --------------------------------------------------------------------------------------------

    def observe(self, sender: Sender, status: EngineStatus, now: float) -> list[Effect]:
        """Take an engine's status."""
        observation, effects = self._monitor.observe(sender, status, now), list[Effect]()
        match observation:
            case Renewed():
                effects += self._recovery.heard(sender.process)
            case Stale():
                return effects
            case Restarted():
                effects += self._lose(observation.previous, now, died=True)
            case Joined():
                effects += self._recovery.join(sender)
        if status.state is ProcessState.STUCK:
            effects += self._recovery.leave_stuck(sender.process, status.error or "no reason given", now)
        return [*effects, *self._routing.recall(now), *self._routing.try_waiting(now)]

    def hear_gateway(self, sender: Sender, status: GatewayStatus, now: float) -> None:
        """The status of another gateway."""
        self._monitor.hear_gateway(sender, status, now)

    def declare_dead(self, ended: Sender, now: float) -> list[Effect]:
        """A supervisor saw this incarnation of an engine or a gateway end: its lease need not be waited for."""
        lost = self._monitor.declare_dead(ended)
        return [] if lost is None else [*self._lose(lost.sender, now, died=True), *self._routing.try_waiting(now)]

    def _lose(self, incarnation: Sender, now: float, *, died: bool) -> list[Effect]:
        self._routing.forget(incarnation.process)
        return self._recovery.lose(incarnation, now, died=died)

    def receive(self, sender: str, message: EngineAnswer, now: float) -> list[Effect]:
        """A message from the engine ``sender``."""
        match message:
            case SlicesEnded():
                effects, may_go = self._ownership.end_slices(message, now), True
            case StepTokens():
                holds_back = self._routing.holds_back
                effects, may_go = self._ownership.take_tokens(sender, message.deltas, now, holds_back=holds_back)
            case Accepted():
                effects, may_go = self._ownership.accept(sender, message, now), False
            case Moved():
                effects, may_go = self._ownership.move(message, now)
            case Held():
                effects, may_go = self._recovery.hold(sender, message, now), False
            case NotHeld():
                effects, may_go = self._recovery.deny(sender, message, now), True
            case Failed():
                effects, may_go = self._recovery.fail(sender, message, now), True
            case Refused():
                request = self._recovery.refuse(sender, message, now)
                effects, may_go = [], request is not None
                if request is not None:
                    self.prefixes.refused(request.spec.service, request.hints.brought)
        return [*effects, *self._routing.try_waiting(now)] if may_go else effects

    # --- events of time -----------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `expire` has something to do; None: never, as things are."""
        earliest = self._monitor.next_deadline()
        deadlines = self._in_flight.next_alarm(), self._recovery.probing.next_deadline(), self._routing.next_opening()
        for deadline in deadlines:
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def expire(self, now: float) -> list[Effect]:
        """Act on the time: leases, answers, gaps and promises may have ended."""
        effects: list[Effect] = [*self._recovery.probing.ask(now)]
        lost = self._monitor.expire(now)
        for event in lost:
            effects += self._lose(event.sender, now, died=False)
        woken = self._in_flight.woken(now)
        opening = self._routing.next_opening()
        if not lost and not woken and (opening is None or opening > now):
            return effects
        for request in woken:
            if now >= request.gives_up_at:
                effects += self._recovery.give_up(request, now)
            elif not request.assignment.is_waiting and request.due(self._limits, now) <= now:
                effects += self._recovery.overdue(request, now)
        effects += self._routing.try_waiting(now)
        effects += self._routing.end_expired(now)
        for request in woken:
            self._in_flight.arm(request, now)
        return effects

    def check_invariants(self) -> None:
        """Check the state of all parts, for tests."""
        self._in_flight.check_invariants()
