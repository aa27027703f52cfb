"""What becomes of requests whose engine failed them: they go on elsewhere, with all their tokens, a bounded number of
times.
"""

from collections.abc import Iterable

from mesh.wire.frames import Sender
from mesh.wire.requests import Cancel, Failed, FailureCode, Held, NotHeld, RefusalCode, Refused
from router.effects import Effect, Forget, Send
from router.generation import Fault, RequestFailed
from router.history.decisions import DecisionLog
from router.requests.breakers import Breakers
from router.requests.in_flight_request import Flight, Phase
from router.requests.in_flight_requests import Flights
from router.requests.limits import DispatchLimits
from router.requests.probing import Probing
from router.view.monitor import Monitor

SOON_TOKENS = 16  # from one death of an engine to the next
FAILURES = (RefusalCode.PEER_SILENT, RefusalCode.TRANSFER_FAILED)  # all other refusals are back pressure
NOBODYS_FAULT = (RefusalCode.UNKNOWN_OWNER, RefusalCode.GATEWAY_SILENT, RefusalCode.RECALLED)


class Recovery:
    """Each event returns the effects that it has, in order. What waits again is to be tried at once by the caller."""

    def __init__(
        self, flights: Flights, monitor: Monitor, breakers: Breakers, limits: DispatchLimits, decisions: DecisionLog
    ) -> None:
        self.probing = Probing(flights, limits.reply_s if limits.ask_s is None else limits.ask_s)
        self._flights = flights
        self._monitor = monitor
        self._breakers = breakers
        self._limits = limits
        self._decisions = decisions
        self._left_behind: dict[Sender, list[Cancel]] = {}  # with engines that may only have been silent

    def __repr__(self) -> str:
        return f"<Recovery {self.probing!r} {self._breakers!r}>"

    # --- engines fail -------------------------------------------------------------------------------------------------

    def lose(self, life: Sender, now: float, *, died: bool) -> list[Effect]:
        """An engine's life ended (``died``), or seems to: what it held goes on elsewhere."""
        engine = life.process
        effects: list[Effect] = [Forget(engine)]
        self._breakers.failed(None, (engine,), now)
        held = [flight for flight in self._flights if engine in flight.engines]
        self._forget_left_behind(engine)
        self._left_behind[life] = [Cancel(flight.id, flight.any_epoch) for flight in held]
        for flight in held:
            effects += self.interrupt(flight, f"{engine} was lost", (engine,), now, died=died)
        return effects

    def join(self, life: Sender) -> list[Effect]:
        """An engine is there. If it is a life that was lost, it was only silent: it need not go on with what it had."""
        cancels = self._left_behind.get(life, [])
        self._forget_left_behind(life.process)
        return [Send(life.process, cancel) for cancel in cancels]

    def _forget_left_behind(self, engine: str) -> None:
        for life in [life for life in self._left_behind if life.process == engine]:
            del self._left_behind[life]

    def leave_stuck(self, engine: str, reason: str, now: float) -> list[Effect]:
        """An engine says that its step does not end: what it holds goes on elsewhere, if there is anywhere to go."""
        effects: list[Effect] = []
        view = self._monitor.view()
        for flight in self._flights:
            num_tokens = flight.spec.num_tokens + len(flight.stream.tokens) + 1
            if engine in flight.engines and view.candidates(flight.spec.service, num_tokens) is not None:
                why = f"{engine} is stuck: {reason}"
                effects += self.interrupt(flight, why, (engine,), now, failed=(engine,), died=True)
        return effects

    # --- requests fail ------------------------------------------------------------------------------------------------

    def overdue(self, flight: Flight, now: float) -> list[Effect]:
        """What was to happen by now did not."""
        failed = flight.engines[:1] if flight.phase is Phase.SENT else flight.engines
        return self.interrupt(flight, flight.silence, flight.engines, now, failed=failed)

    def deny(self, engine: str, message: NotHeld, now: float) -> list[Effect]:
        """A message was lost that told how these requests ended there."""
        effects: list[Effect] = []
        for flight in self.probing.denied(engine, message):
            effects += self.interrupt(flight, f"{' and '.join(flight.engines)} did not have it any more", (), now)
        return effects

    def hold(self, engine: str, message: Held, now: float) -> None:
        """It answers, and has these: they are not forgotten, however long they wait there."""
        for holding in message.requests:
            flight = self._flights.placed(holding.request)
            if flight is not None and flight.attempt == holding.attempt and engine in flight.engines:
                flight.held_at = now
                self._decisions.held(flight.id, engine, holding.num_ahead, now)

    def refuse(self, engine: str, message: Refused, now: float) -> bool:
        """Whether the request waits again."""
        flight = self._flights.placed(message.request)
        if flight is None or message.epoch < flight.stream.epoch:
            return False
        culprits = _culprits(flight, engine, message.code)
        flight.num_refusals += 1
        self._decisions.refused(flight.id, engine, message.code, message.reason, now)
        if message.code in FAILURES:
            self._breakers.failed(flight.id, culprits, now)
        self._flights.wait_again(flight, culprits, now)
        return True

    def fail(self, engine: str, message: Failed, now: float) -> list[Effect]:
        """An engine gave it up. It is to blame if a step with nothing else failed twice, or if the engine says so."""
        flight = self._flights.placed(message.request)
        if flight is None or message.epoch < flight.stream.epoch:
            return []
        if message.code is not FailureCode.STEP:
            self._breakers.forgive(flight.id, now)
            error = RequestFailed(message.reason, Fault.CLIENT, message.code)
            return [*self.stop(flight), self._flights.fail(flight, error, now)]
        flight.num_failed_steps += 1
        if flight.num_failed_steps >= self._limits.max_failed_steps:
            self._breakers.forgive(flight.id, now)
            return [*self.stop(flight), self._flights.fail(flight, RequestFailed(message.reason, Fault.SERVER), now)]
        return self.interrupt(flight, f"{engine}: {message.reason}", (engine,), now, failed=(engine,))

    def interrupt(
        self,
        flight: Flight,
        reason: str,
        culprits: Iterable[str],
        now: float,
        *,
        failed: Iterable[str] = (),
        died: bool = False,
    ) -> list[Effect]:
        """The owner cannot go on with a request: another one will.

        Unless its engines ``died`` one after the other and little came of it in between: it may be what they die of. Or
        no token came for long, whoever had it. ``culprits`` are avoided for a moment, ``failed`` ones have failed it.
        """
        effects = self.stop(flight)
        num_tokens = len(flight.stream.tokens)
        _count_loss(flight, num_tokens, died, now)
        flight.is_recovering = True
        self._breakers.failed(flight.id, failed, now)
        self._decisions.interrupted(flight.id, reason, num_tokens, now)
        if flight.num_deaths > self._limits.max_deaths:
            error = f"given up after {flight.num_deaths} engines failed; the last: {reason}"
            return [*effects, self._flights.fail(flight, RequestFailed(error, Fault.SERVER), now)]
        if now > flight.fruitless_since + self._limits.stall_s:
            error = f"given up after {self._limits.stall_s:g} s without a token, on whatever engine; the last: {reason}"
            return [*effects, self._flights.fail(flight, RequestFailed(error, Fault.SERVER), now)]
        self._flights.wait_again(flight, tuple(culprits), now)
        return effects

    def stop(self, flight: Flight) -> list[Effect]:
        """Tell the living engines that hold it."""
        return [
            Send(engine, Cancel(flight.id, flight.any_epoch))
            for engine in flight.engines
            if self._monitor.is_alive(engine)
        ]


def _count_loss(flight: Flight, num_tokens: int, died: bool, now: float) -> None:
    """``num_tokens``: that came until now, on all engines."""
    flight.num_losses += 1
    if num_tokens > flight.num_tokens_at_loss:
        flight.num_losses, flight.fruitless_since = 1, now
    flight.num_tokens_at_loss = num_tokens
    if died:
        is_soon = num_tokens < flight.num_tokens_at_death + SOON_TOKENS
        flight.num_deaths = flight.num_deaths + 1 if is_soon else 1
        flight.num_tokens_at_death = num_tokens


def _culprits(flight: Flight, engine: str, code: RefusalCode) -> tuple[str, ...]:
    """Whom to avoid: after acceptance, a refusal tells of a failed hand-over, mostly the decode engine's doing."""
    if code in NOBODYS_FAULT:
        return ()
    if code is RefusalCode.TRANSFER_FAILED:
        return flight.engines
    if flight.phase is Phase.RUNNING and len(flight.engines) > 1:
        return flight.engines[1:]
    return (engine,)
