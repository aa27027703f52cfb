"""Decides what becomes of requests whose engine failed them.

They go on elsewhere with all their tokens, a bounded number of times.
"""

from collections.abc import Iterable

from mesh.effects import Forget
from mesh.wire.frames import Sender
from mesh.wire.requests import Cancel, Epoch, Failed, FailureCode, Held, Moved, NotHeld, RefusalCode, Refused
from router.effects import Effect, SendToEngine
from router.generation import Fault, Overloaded, RequestFailed
from router.requests.breakers import Breakers
from router.requests.in_flight_request import InFlightRequest
from router.requests.in_flight_requests import InFlightRequests
from router.requests.limits import DispatchLimits
from router.requests.links import Links
from router.requests.probing import Probing
from router.requests.request_state import ANY_HOP, RequestPhase
from router.view.monitor import Monitor

RETRY_AFTER_S = 1.0
KEPT = 3  # spans between two statuses of an engine, whose cancels may be on their way
FAILURES = (RefusalCode.PEER_SILENT, RefusalCode.TRANSFER_FAILED)  # all other refusals are back pressure
FAULTS = {FailureCode.CUT: Fault.UPSTREAM, FailureCode.ADAPTER: Fault.SERVER}  # clients are to blame for all others
NOBODYS_FAULT = (RefusalCode.UNKNOWN_OWNER, RefusalCode.GATEWAY_SILENT, RefusalCode.RECALLED)


class Recovery:
    """Each event returns the effects that it has, in order. What waits again is to be tried at once by the caller."""

    def __init__(
        self,
        in_flight: InFlightRequests,
        monitor: Monitor,
        breakers: Breakers,
        links: Links,
        limits: DispatchLimits,
    ) -> None:
        self.probing = Probing(in_flight, limits.reply_s if limits.ask_s is None else limits.ask_s)
        self._in_flight = in_flight
        self._monitor = monitor
        self._breakers = breakers
        self._links = links
        self._limits = limits
        self._left_behind: dict[Sender, list[Cancel]] = {}  # with engines that may only have been silent
        self._sent: dict[str, list[list[Cancel]]] = {}  # to engines, between each two of their last statuses

    def __repr__(self) -> str:
        return f"<Recovery {self.probing!r} {self._breakers!r}>"

    # --- engines fail -------------------------------------------------------------------------------------------------

    def lose(self, incarnation: Sender, now: float, *, died: bool) -> list[Effect]:
        """An incarnation of an engine ended (``died``) or seems to have ended: what it held goes on elsewhere."""
        engine = incarnation.process
        effects: list[Effect] = [Forget(engine)]
        self._breakers.failed(None, (engine,), now)
        held = [request for request in self._in_flight if engine in request.engines]
        self._forget_left_behind(engine)
        unheard = [cancel for sent in self._sent.pop(engine, []) for cancel in sent]
        self._left_behind[incarnation] = [
            *unheard,
            *(Cancel(request.id, request.assignment.any_epoch) for request in held),
        ]
        for request in held:
            effects += self.interrupt(request, f"{engine} was lost", (engine,), now, died=died)
        return effects

    def join(self, incarnation: Sender) -> list[Effect]:
        """An engine is there. If it was lost and has not started again, it was only silent: cancel what it held."""
        cancels = self._left_behind.get(incarnation, [])
        self._forget_left_behind(incarnation.process)
        return [SendToEngine(incarnation.process, cancel) for cancel in cancels]

    def heard(self, engine: str) -> list[Effect]:
        """It has said how it is: tell it again what was cancelled just before.

        A request that waits there says nothing that would show that it did not hear it. What was sent before its last
        status but one has arrived, if the connection lasted.
        """
        sent = self._sent.get(engine)
        if sent is None:
            return []
        if len(sent) == KEPT and not any(sent[1:]):
            del self._sent[engine]
        else:
            self._sent[engine] = [*sent[1 - KEPT :], []]
        return [SendToEngine(engine, cancel) for span in sent[1 - KEPT :] for cancel in span]

    def _forget_left_behind(self, engine: str) -> None:
        for lost in [lost for lost in self._left_behind if lost.process == engine]:
            del self._left_behind[lost]

    def leave_stuck(self, engine: str, reason: str, now: float) -> list[Effect]:
        """An engine says that its step does not end: what it holds goes on elsewhere, if there is anywhere to go."""
        effects: list[Effect] = []
        view = self._monitor.view()
        for request in self._in_flight:
            num_tokens = request.spec.num_tokens + len(request.stream.tokens) + 1
            if engine in request.engines and view.candidates(request.spec.service, num_tokens) is not None:
                why = f"{engine} is stuck: {reason}"
                effects += self.interrupt(request, why, (engine,), now, failed=(engine,), died=True)
        return effects

    # --- requests fail ------------------------------------------------------------------------------------------------

    def overdue(self, request: InFlightRequest, now: float) -> list[Effect]:
        """Act on what was to happen by now and did not."""
        failed = request.engines[:1] if request.assignment.phase is RequestPhase.SENT else request.engines
        return self.interrupt(request, request.silence, request.engines, now, failed=failed)

    def deny(self, engine: str, message: NotHeld, now: float) -> list[Effect]:
        """A message was lost that told how these requests ended there."""
        effects: list[Effect] = []
        for request in self.probing.denied(engine, message):
            effects += self.interrupt(request, f"{' and '.join(request.engines)} did not have it any more", (), now)
        return effects

    def hold(self, engine: str, message: Held, now: float) -> list[Effect]:
        """An engine has these: they are not forgotten, however long they wait there. It cancels what was given up."""
        effects: list[Effect] = []
        for holding in message.requests:
            request = self._in_flight.placed(holding.request)
            if request is None or request.assignment.attempt > holding.attempt:
                effects.append(SendToEngine(engine, Cancel(holding.request, Epoch(holding.attempt, ANY_HOP))))
            elif request.assignment.attempt == holding.attempt and engine in request.engines:
                request.contact.held_at = now
                request.timeline.hold(engine, holding.num_ahead, now)
        return effects

    def refuse(self, engine: str, message: Refused, now: float) -> InFlightRequest | None:
        """Note that an engine refused a request. Return the request, which waits again; None: it is not there now."""
        request = self._in_flight.placed(message.request)
        if request is None or message.epoch < request.stream.epoch:
            return None
        culprits = _culprits(request, engine, message.code)
        request.losses.num_refusals += 1
        request.timeline.refuse(engine, message.code, message.reason, now)
        if message.code in FAILURES:
            self._breakers.failed(request.id, culprits, now)
            for decode_engine in request.engines[1:]:
                self._links.failed(request.engines[0], decode_engine, now)
        self._in_flight.wait_again(request, culprits, now)
        return request

    def fail(self, engine: str, message: Failed, now: float) -> list[Effect]:
        """An engine gave it up. It is to blame if a step with nothing else failed twice, or if the engine says so; a
        server that broke off may have died of it.
        """
        request = self._in_flight.placed(message.request)
        if request is None or message.epoch < request.stream.epoch:
            return []
        if message.code is FailureCode.BROKEN:
            why, blamed = f"{engine}: {message.reason}", (engine,)
            return self.interrupt(request, why, blamed, now, failed=blamed, died=True, fault=Fault.UPSTREAM)
        if message.code is not FailureCode.STEP:
            self._breakers.forgive(request.id, now)
            error = RequestFailed(message.reason, FAULTS.get(message.code, Fault.CLIENT), message.code)
            return [*self.stop(request), self._in_flight.fail(request, error, now)]
        request.losses.num_failed_steps += 1
        request.losses.failed_on.add(engine)
        if request.losses.num_failed_steps >= self._limits.max_failed_steps:
            self._breakers.forgive(request.id, now)
            return [
                *self.stop(request),
                self._in_flight.fail(request, RequestFailed(message.reason, Fault.SERVER), now),
            ]
        return self.interrupt(request, f"{engine}: {message.reason}", (engine,), now, failed=(engine,))

    def interrupt(
        self,
        request: InFlightRequest,
        reason: str,
        culprits: Iterable[str],
        now: float,
        *,
        failed: Iterable[str] = (),
        died: bool = False,
        fault: Fault = Fault.SERVER,
    ) -> list[Effect]:
        """The owner cannot go on with a request: another one will.

        Unless its engines ``died`` one after the other and little came of it in between: it may be what they die of. Or
        no token came for long, whoever had it. ``culprits`` are avoided for a moment, ``failed`` ones have failed it.
        ``fault``: whose it is, should that be its end.
        """
        effects = self.stop(request)
        num_tokens = len(request.stream.tokens)
        request.losses.count(num_tokens, now, died=died)
        self._breakers.failed(request.id, failed, now)
        request.timeline.interrupt(reason, now)
        if request.losses.num_deaths > self._limits.max_deaths:
            error = f"given up after {request.losses.num_deaths} attempts that broke off; the last: {reason}"
            return [*effects, self._in_flight.fail(request, RequestFailed(error, fault), now)]
        if now > request.losses.fruitless_since + self._limits.stall_s and not request.spec.is_filler:
            error = f"given up after {self._limits.stall_s:g} s without a token, on whatever engine; the last: {reason}"
            return [*effects, self._in_flight.fail(request, RequestFailed(error, fault), now)]
        self._in_flight.wait_again(request, tuple(culprits), now)
        return effects

    def give_up(self, request: InFlightRequest, now: float) -> list[Effect]:
        """Refuse a request that an engine took and did not begin in time: its client wants no late answer."""
        waited_s, effects = now - request.timeline.arrived_at, self.stop(request)
        reason = f"its first token was promised in {request.spec.slo_ttft_s:g} s and did not come in {waited_s:.1f} s"
        self._breakers.forgive(request.id, now)
        return [*effects, self._in_flight.fail(request, Overloaded(reason, RETRY_AFTER_S), now)]

    def stop(self, request: InFlightRequest) -> list[Effect]:
        """Tell the living engines that hold it."""
        cancel = Cancel(request.id, request.assignment.any_epoch)
        return [self._cancel(engine, cancel) for engine in request.engines if self._monitor.is_alive(engine)]

    def stop_moved(self, message: Moved) -> list[Effect]:
        """Tell the engine to which a request has moved that its attempt was given up meanwhile."""
        return [self._cancel(message.to, Cancel(message.request, Epoch(message.epoch.attempt, ANY_HOP)))]

    def _cancel(self, engine: str, cancel: Cancel) -> SendToEngine:
        self._sent.setdefault(engine, [[]])[-1].append(cancel)
        return SendToEngine(engine, cancel)


def _culprits(request: InFlightRequest, engine: str, code: RefusalCode) -> tuple[str, ...]:
    """Whom to avoid: after acceptance, a refusal tells of a failed hand-over, mostly the decode engine's doing."""
    if code in NOBODYS_FAULT:
        return ()
    if code is RefusalCode.TRANSFER_FAILED:
        return request.engines
    if code is RefusalCode.LATE:
        return (engine,)
    if request.assignment.phase is RequestPhase.RUNNING and len(request.engines) > 1:
        return request.engines[1:]
    return (engine,)
