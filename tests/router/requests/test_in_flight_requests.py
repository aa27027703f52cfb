"""Where the requests of a gateway stand, who is told of their ends, and when each needs attention."""

import pytest

from mesh.wire.requests import FinishReason
from router.effects import Fail
from router.generation import Fault, RequestFailed
from router.history.lengths import LengthPredictor
from router.history.records import Outcome
from router.history.timelines import Timelines
from router.policies.policy import Dispatch
from router.requests.breakers import Breakers
from router.requests.in_flight_request import InFlightRequest
from router.requests.in_flight_requests import InFlightRequests
from router.requests.limits import DispatchLimits
from router.requests.overload.fairness import Fairness
from router.view.monitor import Monitor
from tests.router.cluster import D0, P0, make_spec, make_status, sender_of

LIMITS = DispatchLimits(8, 8, reply_s=1.0)
NOW = 10.0


class World:
    """The requests of a gateway that knows two engines."""

    def __init__(self) -> None:
        self.monitor, self.timelines, self.fairness = Monitor(100.0), Timelines(), Fairness()
        for engine in (P0, D0):
            self.monitor.observe(sender_of(engine), make_status(engine), NOW)
        self.lengths = LengthPredictor()
        self.requests = InFlightRequests(LIMITS, self.monitor, Breakers(), self.timelines, self.lengths, self.fairness)
        self.left: list[str] = []
        self.requests.on_left = self.left.append

    def add(self, name: str = "r", slo_ttft_s: float = 1.0) -> InFlightRequest:
        spec = make_spec(name, slo_ttft_s=slo_ttft_s)
        self.fairness.arrived("", NOW)
        request = InFlightRequest.of(spec, self.timelines.arrived(spec, NOW), 0.0, self.lengths.predict(spec))
        self.requests.add(request)
        self.requests.arm(request, NOW)
        self.requests.check_invariants()
        return request

    def send(self, request: InFlightRequest) -> None:
        self.requests.waiting.remove(request)
        dispatch = Dispatch(P0, D0, "a rule", 0.1, 0.2)
        request.send(dispatch, NOW)
        self.monitor.reserve(request.reservations(dispatch, 0.0))
        self.requests.arm(request, NOW)
        self.requests.check_invariants()

    @property
    def num_reserved(self) -> int:
        return sum(len(self.monitor._reservations.of(engine)) for engine in (P0, D0))


@pytest.fixture
def world() -> World:
    return World()


def test_a_request_is_placed_from_its_dispatch_until_it_waits_again(world: World):
    request = world.add()
    assert world.requests.placed("r") is None
    world.send(request)
    assert world.requests.placed("r") is request
    world.requests.wait_again(request, (P0,), NOW)
    assert world.requests.placed("r") is None
    assert (request.losses.avoids(NOW), world.left, world.num_reserved) == ({P0}, ["r"], 0)
    assert world.requests.placed("nobody") is None
    world.requests.check_invariants()


def finish(world: World, request: InFlightRequest) -> None:
    world.requests.finish(request, FinishReason.STOP, NOW)


def leave(world: World, request: InFlightRequest) -> None:
    world.requests.leave(request, Outcome.CANCELLED, "no longer wanted", NOW)


def fail(world: World, request: InFlightRequest) -> None:
    error = RequestFailed("it broke", Fault.SERVER)
    assert world.requests.fail(request, error, NOW) == Fail("r", error)


@pytest.mark.parametrize(
    ("end", "outcome"), [(finish, Outcome.FINISHED), (leave, Outcome.CANCELLED), (fail, Outcome.FAILED)]
)
@pytest.mark.parametrize("is_sent", [False, True])
def test_however_it_ends_nothing_of_it_is_left(world: World, end, outcome: Outcome, is_sent: bool):
    request, other = world.add(), world.add("other")
    if is_sent:
        world.send(request)
    end(world, request)
    assert request.timeline.ended is not None
    assert request.timeline.ended.outcome is outcome
    assert (list(world.requests), len(world.requests.waiting), world.num_reserved) == ([other], 1, 0)
    assert "r" not in world.requests
    assert world.left == (["r"] if is_sent else [])
    world.requests.check_invariants()


def test_each_is_woken_once_when_it_is_due(world: World):
    first, second = world.add("first", slo_ttft_s=1.0), world.add("second", slo_ttft_s=2.0)
    assert world.requests.next_alarm() == NOW + 1.0
    assert world.requests.woken(NOW + 0.99) == []
    assert world.requests.woken(NOW + 1.0) == [first]
    assert world.requests.woken(NOW + 2.0) == [second]
    assert world.requests.next_alarm() is None


def test_what_has_ended_is_not_armed(world: World):
    request = world.add()
    finish(world, request)
    world.requests.arm(request, NOW)
    assert world.requests.woken(NOW + 100.0) == []


def test_requests_may_end_while_one_looks_at_all(world: World):
    for name in ("a", "b", "c"):
        world.add(name)
    for request in world.requests:
        leave(world, request)
    assert len(world.requests) == 0


def test_answers_that_go_on_make_predictions_longer(world: World):
    """One answer of two tokens has ended, and three others are longer by now."""
    long = [world.add(f"r{number}") for number in range(3)]
    for request in long:
        world.send(request)
        request.stream.tokens += range(40)
    world.requests.finish(world.add("short"), FinishReason.STOP, NOW)
    spec = make_spec("new", max_tokens=4096)
    alone = LengthPredictor()
    alone.ended(spec, alone.predict(spec), 1, FinishReason.STOP)
    assert world.lengths.predict(spec, 0.6).steps[0] > 40 > alone.predict(spec, 0.6).steps[0]
