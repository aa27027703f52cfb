"""The life of requests in one gateway: waiting, dispatch, acceptance, tokens, recovery, end.

Theory of operation. A request waits, is sent to the engine that the policy chose, and runs there once the engine
accepted it. Refused, it waits again and avoids for a moment who refused. If an engine that holds it dies, is silent, or
leaves a gap in its tokens, it waits again with all tokens so far and continues elsewhere under the next attempt, whose
epoch shuts out the old owner. Events in (methods), effects out; time is passed in; no sockets, no clock.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

from mesh.membership import Restarted, Stale
from mesh.messages import (
    Accepted,
    Cancel,
    Delta,
    EngineAnswer,
    EngineStatus,
    Epoch,
    Failed,
    FinishReason,
    Moved,
    RefusalCode,
    Refused,
    RequestSpec,
    Role,
    Sender,
    StepTokens,
)
from router.alarms import Alarms
from router.cluster import ClusterView
from router.decisions import DecisionLog, Seen
from router.effects import Deliver, Effect, Fail, Forget, Place, Send
from router.flight import ANY_HOP, Flight, Phase
from router.generation import Fault, NoEngines, Overloaded, RequestFailed, RouterError, TokenBatch
from router.limits import DispatchLimits
from router.monitor import Monitor
from router.policies.least_loaded import LeastLoaded
from router.policies.policy import Decision, Dispatch, GiveUp, Policy, Reject, Wait
from router.prefixes import PrefixIndex
from router.prompt_hashes import full_block_hashes
from router.records import Outcome
from router.streams import Broken, Fence
from router.waiting import WaitingQueue

TRIES_PER_ROUND = 32  # waiting requests of a service that are tried in vain on one change, most urgent first
MIN_RETRY_AFTER_S, MAX_RETRY_AFTER_S = 1.0, 60.0


class Dispatcher:
    """Owns the requests of one gateway. Every event returns the effects that the shell has to carry out, in order."""

    def __init__(self, policy: Policy, monitor: Monitor, limits: DispatchLimits) -> None:
        self.decisions = DecisionLog()
        self._policy = policy
        self._last_resort = LeastLoaded()
        self._monitor = monitor
        self._prefixes: defaultdict[str, PrefixIndex] = defaultdict(PrefixIndex)  # by service
        self._limits = limits
        self._flights: dict[str, Flight] = {}
        self._waiting = WaitingQueue()
        self._alarms = Alarms()
        self._num_arrived = 0

    def __repr__(self) -> str:
        return f"<Dispatcher {len(self._flights)} in flight, {len(self._waiting)} waiting>"

    @property
    def num_requests(self) -> int:
        return len(self._flights)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    # --- events of consumers ------------------------------------------------------------------------------------------

    def submit(self, spec: RequestSpec, now: float) -> list[Effect]:
        """A new request. Raises `Overloaded` if a bound is reached, `ValueError` if its id is in flight."""
        if spec.id in self._flights:
            raise ValueError(f"request {spec.id} is in flight already")
        self.decisions.arrived(spec, now - spec.age_s)
        if reason := self._why_full():
            error = self._overloaded(spec.service, reason, now)
            self.decisions.failed(spec.id, error, 0, now)
            raise error
        self._num_arrived += 1
        flight = Flight.of(spec, self._num_arrived, self._policy.grace_s, now)
        if self._policy.uses_prefixes:
            flight.prefix = full_block_hashes(spec.prompt)
        self._flights[spec.id] = flight
        self._waiting.add(flight)
        effects = self._try_waiting(now)
        self._arm(flight, now)
        return effects

    def _why_full(self) -> str | None:
        if len(self._flights) >= self._limits.max_requests:
            return f"{self._limits.max_requests} requests are in flight"
        if len(self._waiting) >= self._limits.max_waiting:
            return f"{self._limits.max_waiting} requests wait already"
        return None

    def cancel(
        self, request: str, now: float, outcome: Outcome = Outcome.CANCELLED, reason: str = "not wanted any more"
    ) -> list[Effect]:
        """The consumer has what it wanted of it, or will not take it. Unknown requests are ignored."""
        flight = self._flights.get(request)
        if flight is None:
            return []
        effects = self._stop(flight)
        self._remove(flight)
        self.decisions.left(request, outcome, reason, len(flight.stream.tokens), flight.progress_at, now)
        return [*effects, *self._try_waiting(now)]

    def switch(self, policy: Policy, now: float) -> list[Effect]:
        """Decide by this policy from now on, first about all that wait. What was sent stays where it is."""
        self._policy = policy
        for flight in self._flights.values():
            flight.wait_reason, flight.grace_s = "", policy.grace_s
            self._arm(flight, now)
        return self._try_waiting(now, len(self._waiting))

    # --- events of engines --------------------------------------------------------------------------------------------

    def observe(self, sender: Sender, status: EngineStatus, now: float) -> list[Effect]:
        """An engine's status."""
        observation = self._monitor.observe(sender, status, now)
        if isinstance(observation, Stale):
            return []
        if isinstance(observation, Restarted):
            return [*self._lose(sender.process, now), *self._try_waiting(now)]
        return self._try_waiting(now)

    def receive(self, sender: str, message: EngineAnswer, now: float) -> list[Effect]:
        """A message from the engine ``sender``."""
        match message:
            case StepTokens():
                return self._take_tokens(sender, message.deltas, now)
            case Accepted():
                return self._accept(sender, message, now)
            case Refused():
                return self._refuse(sender, message, now)
            case Moved():
                return self._move(message, now)
            case Failed():
                return self._fail(message, now)

    def _take_tokens(self, sender: str, deltas: Iterable[Delta], now: float) -> list[Effect]:
        effects: list[Effect] = []
        num_waiting = len(self._waiting)
        for delta in deltas:
            flight = self._flights.get(delta.request)
            if flight is None:
                effects += _stop_stranger(sender, delta)
            elif flight.phase is not Phase.WAITING:
                effects += self._take_delta(flight, sender, delta, now)
        was_interrupted = len(self._waiting) > num_waiting
        return effects + self._try_waiting(now) if was_interrupted else effects

    def _take_delta(self, flight: Flight, sender: str, delta: Delta, now: float) -> list[Effect]:
        stream = flight.stream
        epoch = stream.epoch
        if delta.finish is FinishReason.CANCELLED and delta.epoch >= epoch:
            return self._interrupt(flight, f"{sender} cancelled it unasked", [sender], now)
        taken = stream.take(delta, now)
        if isinstance(taken, Fence):
            return [Send(sender, Cancel(delta.request, taken.epoch))]
        if isinstance(taken, Broken):
            return self._interrupt(flight, f"tokens of {sender}: {taken.reason}", [sender], now)
        if stream.epoch != epoch or flight.phase is Phase.SENT:
            self._own(flight, sender, now)
        flight.progress_at = now
        if stream.gap_since is not None:
            self._arm(flight, now)
        return self._deliver(flight, sender, taken, now)

    def _deliver(self, flight: Flight, sender: str, batches: list[TokenBatch], now: float) -> list[Effect]:
        if batches and flight.first_token_at is None:
            flight.first_token_at = now
            self.decisions.first_token(flight.id, sender, now)
        if batches and (finish := batches[-1].finish) is not None:
            self._remove(flight)
            self.decisions.finished(flight.id, finish, len(flight.stream.tokens), now)
        return [Deliver(flight.id, batch) for batch in batches]

    def _own(self, flight: Flight, engine: str, now: float) -> None:
        """Tokens came from a new owner: it has the request, and its statuses count it."""
        if flight.engines != (engine,):
            self.decisions.moved(flight.id, engine, now)
        flight.phase, flight.engines = Phase.RUNNING, (engine,)
        self._monitor.release(flight.id)

    def _move(self, message: Moved, now: float) -> list[Effect]:
        """A migration has ended: should the new owner die before its first token comes, this is how that is noticed."""
        flight = self._flights.get(message.request)
        if flight is None or flight.phase is Phase.WAITING or flight.engines == (message.to,):
            return []
        if message.epoch.attempt != flight.attempt or message.epoch < flight.stream.epoch:
            return []
        if not self._monitor.is_alive(message.to):
            effects = self._interrupt(flight, f"{message.to} was lost", [message.to], now)
            return [*effects, *self._try_waiting(now)]
        self._own(flight, message.to, now)
        return []

    def _accept(self, engine: str, message: Accepted, now: float) -> list[Effect]:
        flight = self._flights.get(message.request)
        if flight is None or flight.phase is Phase.WAITING or message.epoch.attempt != flight.attempt:
            return [Send(engine, Cancel(message.request, Epoch(message.epoch.attempt, ANY_HOP)))]
        if flight.phase is Phase.SENT:
            flight.phase, flight.progress_at = Phase.RUNNING, now
            self._monitor.accepted(flight.id, engine, message.status_seq)
            self.decisions.accepted(flight.id, engine, now)
            self._arm(flight, now)
        return []

    def _refuse(self, engine: str, message: Refused, now: float) -> list[Effect]:
        flight = self._flights.get(message.request)
        if flight is None or flight.phase is Phase.WAITING or message.epoch < flight.stream.epoch:
            return []
        culprits = self._culprits(flight, engine, message.code)
        flight.num_refusals += 1
        self.decisions.refused(flight.id, engine, message.code, message.reason, now)
        self._wait_again(flight, culprits, now)
        return self._try_waiting(now)

    @staticmethod
    def _culprits(flight: Flight, engine: str, code: RefusalCode) -> tuple[str, ...]:
        """Whom to avoid: after acceptance, a refusal tells of a failed hand-over, mostly the decode engine's doing."""
        if code is RefusalCode.UNKNOWN_OWNER:
            return ()
        if code is RefusalCode.TRANSFER_FAILED:
            return flight.engines
        if flight.phase is Phase.RUNNING and len(flight.engines) > 1:
            return flight.engines[1:]
        return (engine,)

    def _fail(self, message: Failed, now: float) -> list[Effect]:
        flight = self._flights.get(message.request)
        if flight is None or flight.phase is Phase.WAITING or message.epoch < flight.stream.epoch:
            return []
        effects = self._stop(flight)
        return [*effects, self._end(flight, RequestFailed(message.reason, Fault.SERVER), now)]

    # --- events of time -----------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `expire` has something to do; None: never, as things are."""
        lease, alarm = self._monitor.next_deadline(), self._alarms.next()
        if lease is None or alarm is None:
            return alarm if lease is None else lease
        return min(lease, alarm)

    def expire(self, now: float) -> list[Effect]:
        """Time has passed: leases, answers, gaps and promises may have ended."""
        lost = self._monitor.expire(now)
        effects = [effect for event in lost for effect in self._lose(event.sender.process, now)]
        woken = [self._flights[request] for request in self._alarms.pop(now)]
        if not lost and not woken:
            return []
        for flight in woken:
            if flight.phase is not Phase.WAITING and flight.due(self._limits, now) <= now:
                effects += self._interrupt(flight, flight.silence, flight.engines, now)
        effects += self._try_waiting(now)
        effects += self._end_expired(now)
        for flight in woken:
            self._arm(flight, now)
        return effects

    def _end_expired(self, now: float) -> list[Effect]:
        """Rule 4: what has waited for too long is rejected, once it was tried for the last time."""
        return [
            self._end(flight, self._too_late(flight, now), now)
            for flight in self._waiting
            if now >= flight.expires_at(self._limits)
        ]

    def _arm(self, flight: Flight, now: float) -> None:
        """See to it that the flight is woken when it is due."""
        if flight.id in self._flights:
            self._alarms.set(flight.id, flight.due(self._limits, now))

    # --- dispatch -----------------------------------------------------------------------------------------------------

    def _try_waiting(self, now: float, max_in_vain: int = TRIES_PER_ROUND) -> list[Effect]:
        """Dispatch what can be dispatched, earliest deadline first."""
        effects: list[Effect] = []
        if not self._waiting:
            return effects
        num_in_vain: Counter[str] = Counter()  # by service: none takes the turns of another
        view: ClusterView | None = None
        for flight in self._ranked(now):
            service = flight.spec.service
            if num_in_vain[service] >= max_in_vain:
                continue
            view = view or self._monitor.view()
            decision = self._decide(flight, view, now)
            if isinstance(decision, Wait):
                num_in_vain[service] += 1
            else:
                effects += self._carry_out(flight, decision, now)
                view = None
        changes = self._policy.rebalance(view or self._monitor.view(), num_in_vain.total(), now)
        return [*effects, *(Send(change.engine, change.message) for change in changes)]

    def _ranked(self, now: float) -> Iterable[Flight]:
        """Those that wait, in the policy's order."""
        waiting = [flight.request for flight in self._waiting]
        return [self._flights[request.id] for request in self._policy.rank(waiting, self._monitor.view(), now)]

    def _decide(self, flight: Flight, view: ClusterView, now: float) -> Decision:
        overdue = flight.is_recovering and now >= flight.deadline
        policy: Policy = self._last_resort if overdue else self._policy
        avoided = flight.avoids(now)
        view = view.without(avoided)
        request = flight.request
        if flight.prefix:
            request = replace(request, cached=self._prefixes[request.service].cached_tokens(flight.prefix))
        decision = policy.decide(request, view, now)
        if isinstance(decision, Reject | GiveUp) and (avoided or flight.is_recovering):
            why = "it would be late" if isinstance(decision, GiveUp) else decision.reason
            decision = Wait(f"{why}, of the engines that it can be sent to now")
        if not isinstance(decision, Wait) or decision.reason != flight.wait_reason:
            seen = Seen(now, request, view, avoided)
            self.decisions.decided(flight.attempt + 1, policy.name, decision, seen)
        if isinstance(decision, Wait):
            flight.wait_reason = decision.reason
        return decision

    def _carry_out(self, flight: Flight, decision: Dispatch | Reject | GiveUp, now: float) -> list[Effect]:
        if isinstance(decision, Reject):
            return [self._end(flight, RequestFailed(decision.reason, Fault.CLIENT), now)]
        if isinstance(decision, GiveUp):
            return [self._end(flight, self._overloaded(flight.spec.service, decision.reason, now), now)]
        self._waiting.remove(flight)
        submit = flight.send(decision, now)
        self._monitor.reserve(flight.reservations(decision))
        service = flight.spec.service
        for engine in flight.engines if flight.prefix else ():
            pool = self._monitor.view().engines[engine].services[service]
            self._prefixes[service].add(flight.prefix, engine, pool.num_slots)
        self._arm(flight, now)
        return [Place(flight.id, flight.placement(decision, now)), Send(decision.prefill_engine, submit)]

    # --- interruptions and ends ---------------------------------------------------------------------------------------

    def _lose(self, engine: str, now: float) -> list[Effect]:
        """An engine's life ended: what it held goes on elsewhere."""
        effects: list[Effect] = [Forget(engine)]
        for prefixes in self._prefixes.values():
            prefixes.forget(engine)
        for flight in list(self._flights.values()):
            if engine in flight.engines:
                effects += self._interrupt(flight, f"{engine} was lost", [engine], now, died=True)
        return effects

    def _interrupt(
        self, flight: Flight, reason: str, culprits: Iterable[str], now: float, *, died: bool = False
    ) -> list[Effect]:
        """The owner cannot go on with a request: another one will, unless that happened too often.

        A request may be what its engines die of. Lost messages are not held against one that makes progress.
        """
        effects = self._stop(flight)
        num_tokens = len(flight.stream.tokens)
        if died or num_tokens <= flight.num_tokens_at_loss:
            flight.num_losses += 1
        flight.num_tokens_at_loss = num_tokens
        flight.is_recovering = True
        self.decisions.interrupted(flight.id, reason, len(flight.stream.tokens), now)
        if flight.num_losses > self._limits.max_losses:
            error = RequestFailed(
                f"given up after {flight.num_losses} engines failed; the last: {reason}", Fault.SERVER
            )
            return [*effects, self._end(flight, error, now)]
        self._wait_again(flight, tuple(culprits), now)
        return effects

    def _stop(self, flight: Flight) -> list[Effect]:
        """Tell the living engines that hold it."""
        return [
            Send(engine, Cancel(flight.id, flight.any_epoch))
            for engine in flight.engines
            if self._monitor.is_alive(engine)
        ]

    def _wait_again(self, flight: Flight, culprits: tuple[str, ...], now: float) -> None:
        self._monitor.release(flight.id)
        flight.avoid(culprits, now)
        flight.wait_again(now)
        self._waiting.add(flight)
        self._arm(flight, now)

    def _end(self, flight: Flight, error: RouterError, now: float) -> Fail:
        self._remove(flight)
        self.decisions.failed(flight.id, error, len(flight.stream.tokens), now)
        return Fail(flight.id, error)

    def _remove(self, flight: Flight) -> None:
        if flight.phase is Phase.WAITING:
            self._waiting.remove(flight)
        del self._flights[flight.id]
        self._alarms.clear(flight.id)
        self._monitor.release(flight.id)

    def _too_late(self, flight: Flight, now: float) -> RouterError:
        service = flight.spec.service
        if not self._monitor.view().serving(service):
            return NoEngines(f"no engine is ready to serve {service}", MIN_RETRY_AFTER_S)
        waited_s = now - flight.arrived_at
        return self._overloaded(service, f"no engine could take the request within {waited_s:.1f} s", now)

    def _overloaded(self, service: str, reason: str, now: float) -> Overloaded:
        """With a hint when to come back: when the first engine that prefills will have nothing queued."""
        serving = self._monitor.view().serving(service)
        prefilling = [engine for engine in serving if engine.role is not Role.DECODE] or serving
        backlog_s = min((engine.backlog_s(now) for engine in prefilling), default=0.0)
        return Overloaded(reason, min(max(backlog_s, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S))

    def check_invariants(self) -> None:
        """For tests."""
        waiting = list(self._waiting)
        assert waiting == sorted(waiting, key=lambda flight: flight.order), f"out of order: {self._waiting!r}"
        assert {f.id for f in waiting} == {f.id for f in self._flights.values() if f.phase is Phase.WAITING}
        for flight in self._flights.values():
            assert (flight.phase is Phase.WAITING) == (not flight.engines), f"{flight.id} is nowhere or twice"
            assert flight.id in self._alarms, f"{flight.id} has no alarm"


def _stop_stranger(sender: str, delta: Delta) -> list[Effect]:
    """Tokens of a request that is over here: its owner has not heard of it yet."""
    if delta.finish is not None:
        return []
    return [Send(sender, Cancel(delta.request, Epoch(delta.epoch.attempt, ANY_HOP)))]
