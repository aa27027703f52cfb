"""All requests of one gateway: where each stands, which of them wait, and when each needs attention."""

from collections.abc import Callable, Iterator

from mesh.wire.requests import FinishReason, RequestSpec
from router.effects import Fail
from router.generation import RouterError
from router.history.lengths import LengthPredictor
from router.history.records import Outcome
from router.history.timelines import Timelines
from router.requests.alarms import Alarms
from router.requests.breakers import Breakers
from router.requests.in_flight_request import InFlightRequest
from router.requests.limits import DispatchLimits
from router.requests.overload.fairness import Fairness
from router.requests.waiting import WaitingQueue
from router.view.monitor import Monitor


class InFlightRequests:
    """Every change of a request's place goes through here. Their ends are written to ``timelines``."""

    def __init__(
        self,
        limits: DispatchLimits,
        monitor: Monitor,
        breakers: Breakers,
        timelines: Timelines,
        lengths: LengthPredictor,
        fairness: Fairness,
    ) -> None:
        self.waiting = WaitingQueue()  # those with promises
        self.filling = WaitingQueue()  # those without
        self.num_fillers = 0
        self._limits = limits
        self._monitor = monitor
        self._breakers = breakers
        self._timelines = timelines
        self._lengths = lengths
        self._fairness = fairness
        self._in_flight: dict[str, InFlightRequest] = {}
        self._alarms = Alarms()
        self.get = self._in_flight.get
        self.on_left: Callable[[str], None] | None = None  # is told of each that leaves its engines
        lengths.watch(self._answers)

    def __repr__(self) -> str:
        return f"<InFlightRequests {len(self)} in flight, {len(self.waiting)} waiting>"

    def __len__(self) -> int:
        return len(self._in_flight)

    def __contains__(self, request: str) -> bool:
        return request in self._in_flight

    def __iter__(self) -> Iterator[InFlightRequest]:
        """Iterate over those that there are now; they may change meanwhile."""
        return iter(tuple(self._in_flight.values()))

    def placed(self, request_id: str) -> InFlightRequest | None:
        """A request that is with an engine, or on its way there."""
        request = self._in_flight.get(request_id)
        return None if request is None or request.assignment.is_waiting else request

    def add(self, request: InFlightRequest) -> None:
        """A new one, which waits."""
        if request.spec.is_filler:
            self.num_fillers += 1
        else:
            self._fairness.add(request)
        self._in_flight[request.id] = request
        self._queue_of(request).add(request)

    def _queue_of(self, request: InFlightRequest) -> WaitingQueue:
        return self.filling if request.spec.is_filler else self.waiting

    @property
    def promised(self) -> list[InFlightRequest]:
        """Return the requests with promises."""
        if not self.num_fillers:
            return list(self._in_flight.values())
        return [request for request in self._in_flight.values() if not request.spec.is_filler]

    @property
    def fillers(self) -> list[InFlightRequest]:
        """Return the requests without."""
        return [one for one in self._in_flight.values() if one.spec.is_filler] if self.num_fillers else []

    def wait_again(
        self, request: InFlightRequest, avoided: tuple[str, ...], now: float, *, has_slice_ended: bool = False
    ) -> None:
        self._leave_engines(request)
        request.losses.avoid(avoided, now)
        request.wait_again(now, has_slice_ended=has_slice_ended)
        self._queue_of(request).add(request)
        self.arm(request, now)

    # --- alarms -------------------------------------------------------------------------------------------------------

    def arm(self, request: InFlightRequest, now: float) -> None:
        """See to it that the flight is woken when it is due."""
        if request.id in self._in_flight:
            self._alarms.set(request.id, request.due(self._limits, now))

    def next_alarm(self) -> float | None:
        return self._alarms.next()

    def woken(self, now: float) -> list[InFlightRequest]:
        """Return those whose alarms go off; they have none until they are armed anew."""
        return [self._in_flight[request] for request in self._alarms.pop(now)]

    # --- ends ---------------------------------------------------------------------------------------------------------

    def finish(self, request: InFlightRequest, reason: FinishReason, now: float) -> None:
        self._remove(request, reason)
        self._timelines.finished(request.timeline, reason, now)

    def leave(self, request: InFlightRequest, outcome: Outcome, reason: str, now: float) -> None:
        """End a request because its consumer did."""
        self._remove(request, FinishReason.STOP if outcome is Outcome.FINISHED else None)
        self._timelines.left(request.timeline, outcome, reason, now)

    def fail(self, request: InFlightRequest, error: RouterError, now: float) -> Fail:
        self._remove(request, None)
        self._timelines.failed(request.timeline, error, now)
        return Fail(request.id, error)

    def _remove(self, request: InFlightRequest, finish: FinishReason | None) -> None:
        """``finish``: None if its answer is not whole."""
        if request.assignment.is_waiting:
            self._queue_of(request).remove(request)
        del self._in_flight[request.id]
        self._alarms.clear(request.id)
        if request.spec.is_filler:
            self.num_fillers -= 1
        else:
            self._fairness.remove(request)
            self._lengths.ended(request.spec, request.hints.answer, _num_generated(request), finish)
        self._leave_engines(request)

    def _answers(self) -> list[tuple[RequestSpec, int]]:
        """Return the answers that go on, with the tokens that each has by now."""
        return [(one.spec, _num_generated(one)) for one in self.promised]

    def _leave_engines(self, request: InFlightRequest) -> None:
        self._monitor.release(request.id)
        if request.assignment.dispatch is not None:
            if self.on_left is not None and not request.spec.is_filler:
                self.on_left(request.id)
            self._breakers.left(
                request.id, (request.assignment.dispatch.prefill_engine, request.assignment.dispatch.decode_engine)
            )

    def check_invariants(self) -> None:
        """Check the state, for tests."""
        waiting = [*self.waiting, *self.filling]
        assert waiting == sorted(waiting, key=lambda request: request.order), f"out of order: {waiting!r}"
        assert self.num_fillers == len(self.fillers)
        assert {f.id for f in waiting} == {f.id for f in self if f.assignment.is_waiting}
        for request in self:
            assert (request.assignment.is_waiting) == (not request.engines), f"{request.id} is nowhere or twice"
            assert request.id in self._alarms, f"{request.id} has no alarm"


def _num_generated(request: InFlightRequest) -> int:
    return len(request.spec.generated) + len(request.stream.tokens)
