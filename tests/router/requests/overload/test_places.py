"""What a gateway has places for: its bounds, lines of batches, and tenants that have more than their shares."""

import pytest

from mesh.wire.requests import PRIORITY_BATCH
from router.effects import Fail
from router.generation import Overloaded
from router.history.lengths import LengthPredictor
from router.history.timelines import Timelines
from router.requests.breakers import Breakers
from router.requests.in_flight_request import InFlightRequest
from router.requests.in_flight_requests import InFlightRequests
from router.requests.limits import DispatchLimits
from router.requests.overload.fairness import LAST_PLACES, Fairness
from router.requests.overload.places import FILLER_PLACES, GatewayPlaces
from router.view.monitor import Monitor
from tests.router.cluster import make_spec

MOST = 2 * LAST_PLACES


class World:
    """A gateway without engines: whatever gets a place waits."""

    def __init__(self, max_requests: int = MOST, max_waiting: int = MOST) -> None:
        limits = DispatchLimits(max_requests, max_waiting, reply_s=1.0)
        monitor, self.timelines, self.fairness = Monitor(100.0), Timelines(), Fairness()
        self.lengths = LengthPredictor()
        self.requests = InFlightRequests(limits, monitor, Breakers(), self.timelines, self.lengths, self.fairness)
        self.places = GatewayPlaces(self.requests, limits, self.fairness, monitor)

    def submit(self, name: str, tenant: str = "", *, is_filler: bool = False) -> list[str]:
        """Return the names of those that were refused for it."""
        spec = make_spec(name, priority=PRIORITY_BATCH) if is_filler else make_spec(name)
        effects = self.places.make(spec, tenant, 0.0)
        timeline = self.timelines.arrived(spec, 0.0)
        self.requests.add(InFlightRequest.of(spec, timeline, 0.0, self.lengths.predict(spec), tenant))
        return [effect.request for effect in effects if isinstance(effect, Fail)]


def test_one_tenant_alone_has_all_places_and_no_more():
    world = World()
    for number in range(MOST):
        assert world.submit(f"r{number}") == []
    with pytest.raises(Overloaded, match=f"^{MOST} requests are in flight$"):
        world.submit("one too many")
    assert len(world.requests) == MOST


def test_no_more_wait_than_may():
    world = World(max_waiting=2)
    world.submit("a")
    world.submit("b")
    with pytest.raises(Overloaded, match="2 requests wait already"):
        world.submit("c")


def test_a_tenant_that_floods_makes_room_for_another():
    world = World()
    for number in range(MOST):
        world.submit(f"r{number}", "flood")
    assert world.submit("a", "other") == [f"r{MOST - 1}"], "its last one"
    assert len(world.requests) == MOST


def test_who_has_its_share_leaves_the_last_places_to_others():
    world = World()
    world.submit("a", "other")
    for number in range(MOST - MOST // LAST_PLACES - 1):
        world.submit(f"r{number}", "flood")
    with pytest.raises(Overloaded):
        world.submit("one too many", "flood")
    assert world.submit("b", "other") == []


def test_lines_of_batches_take_no_place_of_requests_with_promises():
    world = World()
    for number in range(MOST // FILLER_PLACES):
        world.submit(f"f{number}", is_filler=True)
    with pytest.raises(Overloaded, match=f"^{MOST // FILLER_PLACES} lines of batches run$"):
        world.submit("one too many", is_filler=True)
    for number in range(MOST):
        assert world.submit(f"r{number}") == []


def test_a_gateway_of_few_places_takes_one_line_of_a_batch():
    world = World(max_requests=1)
    world.submit("f", is_filler=True)
    with pytest.raises(Overloaded, match="lines of batches"):
        world.submit("g", is_filler=True)
