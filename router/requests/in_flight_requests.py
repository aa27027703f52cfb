"""All requests of one gateway: where each stands, which of them wait, and when each needs attention."""

from collections.abc import Callable, Iterator

from mesh.wire.requests import FinishReason
from router.effects import Fail
from router.generation import RouterError
from router.history.decisions import DecisionLog
from router.history.lengths import LengthPredictor
from router.history.records import Outcome
from router.requests.alarms import Alarms
from router.requests.breakers import Breakers
from router.requests.fairness import Fairness
from router.requests.in_flight_request import Flight, Phase
from router.requests.limits import DispatchLimits
from router.requests.waiting import WaitingQueue
from router.view.monitor import Monitor


class Flights:
    """Every change of a request's place goes through here. Their ends are written to ``decisions``."""

    def __init__(
        self,
        limits: DispatchLimits,
        monitor: Monitor,
        breakers: Breakers,
        decisions: DecisionLog,
        lengths: LengthPredictor,
        fairness: Fairness,
    ) -> None:
        self.waiting = WaitingQueue()
        self._limits = limits
        self._monitor = monitor
        self._breakers = breakers
        self._decisions = decisions
        self._lengths = lengths
        self._fairness = fairness
        self._flights: dict[str, Flight] = {}
        self._alarms = Alarms()
        self.get = self._flights.get
        self.on_left: Callable[[str], None] = lambda request: None  # is told of each that leaves its engines

    def __repr__(self) -> str:
        return f"<Flights {len(self)} in flight, {len(self.waiting)} waiting>"

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, request: str) -> bool:
        return request in self._flights

    def __iter__(self) -> Iterator[Flight]:
        """Over those that there are now; they may change meanwhile."""
        return iter(tuple(self._flights.values()))

    def placed(self, request: str) -> Flight | None:
        """A request that is with an engine, or on its way there."""
        flight = self._flights.get(request)
        return None if flight is None or flight.phase is Phase.WAITING else flight

    def add(self, flight: Flight) -> None:
        """A new one, which waits."""
        self._fairness.add(flight)
        self._flights[flight.id] = flight
        self.waiting.add(flight)

    def wait_again(
        self, flight: Flight, avoided: tuple[str, ...], now: float, *, has_slice_ended: bool = False
    ) -> None:
        self._leave_engines(flight)
        flight.avoid(avoided, now)
        flight.wait_again(now, has_slice_ended=has_slice_ended)
        self.waiting.add(flight)
        self.arm(flight, now)

    # --- alarms -------------------------------------------------------------------------------------------------------

    def arm(self, flight: Flight, now: float) -> None:
        """See to it that the flight is woken when it is due."""
        if flight.id in self._flights:
            self._alarms.set(flight.id, flight.due(self._limits, now))

    def next_alarm(self) -> float | None:
        return self._alarms.next()

    def woken(self, now: float) -> list[Flight]:
        """Those whose alarms go off; they have none until they are armed anew."""
        return [self._flights[request] for request in self._alarms.pop(now)]

    # --- ends ---------------------------------------------------------------------------------------------------------

    def finish(self, flight: Flight, reason: FinishReason, now: float) -> None:
        self._remove(flight, reason)
        self._decisions.finished(flight.id, reason, len(flight.stream.tokens), now)

    def leave(self, flight: Flight, outcome: Outcome, reason: str, now: float) -> None:
        """Its consumer ended it."""
        self._remove(flight, FinishReason.STOP if outcome is Outcome.FINISHED else None)
        self._decisions.left(flight.id, outcome, reason, len(flight.stream.tokens), flight.progress_at, now)

    def fail(self, flight: Flight, error: RouterError, now: float) -> Fail:
        self._remove(flight, None)
        self._decisions.failed(flight.id, error, len(flight.stream.tokens), now)
        return Fail(flight.id, error)

    def _remove(self, flight: Flight, finish: FinishReason | None) -> None:
        """``finish``: None if its answer is not whole."""
        if flight.phase is Phase.WAITING:
            self.waiting.remove(flight)
        del self._flights[flight.id]
        self._fairness.remove(flight)
        self._alarms.clear(flight.id)
        num_generated = len(flight.spec.generated) + len(flight.stream.tokens)
        self._lengths.ended(flight.spec, flight.prediction, num_generated, finish)
        self._leave_engines(flight)

    def _leave_engines(self, flight: Flight) -> None:
        self._monitor.release(flight.id)
        if flight.dispatch is not None:
            self.on_left(flight.id)
            self._breakers.left(flight.id, (flight.dispatch.prefill_engine, flight.dispatch.decode_engine))

    def check_invariants(self) -> None:
        """For tests."""
        waiting = list(self.waiting)
        assert waiting == sorted(waiting, key=lambda flight: flight.order), f"out of order: {self.waiting!r}"
        assert {f.id for f in waiting} == {f.id for f in self if f.phase is Phase.WAITING}
        for flight in self:
            assert (flight.phase is Phase.WAITING) == (not flight.engines), f"{flight.id} is nowhere or twice"
            assert flight.id in self._alarms, f"{flight.id} has no alarm"
