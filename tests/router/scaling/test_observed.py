"""What services are asked for now, from the sums that gateways publish."""

from math import inf

import pytest

from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.status import GatewayStatus, ServiceTally
from router.placement.observe.traffic import Moments
from router.scaling.observed import LEAST_S, REQUESTS, ObservedServices

GATEWAY = Sender("gateway", 1)


def tally(arrived: int, num_input: int = 10, num_output: int = 4, late: int = 0) -> ServiceTally:
    """Requests that are all alike, and have all been answered."""
    inputs, outputs = (arrived * num_input, arrived * num_input**2), (arrived * num_output, arrived * num_output**2)
    return ServiceTally("chat", arrived, *inputs, arrived, late, arrived, *outputs)


class World:
    def __init__(self) -> None:
        self.observed = ObservedServices(0.0)
        self._sum = ServiceTally("chat")
        self.tell(tally(0), 0.0)

    def tell(self, more: ServiceTally, now: float) -> None:
        values = (getattr(self._sum, name) + getattr(more, name) for name in ServiceTally.__struct_fields__[1:])
        self._sum = ServiceTally("chat", *values)
        status = GatewayStatus(1, ProcessState.READY, "local", 1, "", 0, 0, services=[self._sum])
        self.observed.observe(GATEWAY, status, now)

    def look(self, more: ServiceTally, now: float) -> None:
        self.tell(more, now)
        self.observed.look(now)


def test_a_look_counts_what_came_since_the_last_one():
    world = World()
    world.look(tally(10), 1.0)
    world.look(tally(30), 2.0)
    found = world.observed.get("chat")
    assert found is not None
    assert found.rate.rate == pytest.approx(20.0)


def test_looks_that_follow_too_soon_are_one():
    world = World()
    world.look(tally(10), LEAST_S / 2)
    assert world.observed.get("chat") is None
    world.look(tally(10), LEAST_S)
    found = world.observed.get("chat")
    assert found is not None
    assert found.rate.rate == pytest.approx(20 / LEAST_S)


def test_a_service_that_nobody_asks_for_any_more_is_asked_for_less():
    world = World()
    world.look(tally(100), 1.0)
    world.observed.look(11.0)
    found = world.observed.get("chat")
    assert found is not None
    assert found.rate.rate < 20.0
    assert world.observed.changed_at("chat") == 11.0
    assert world.observed.changed_at("another") == -inf


def test_a_gateway_that_starts_anew_and_names_no_service_asks_for_none():
    world = World()
    world.look(tally(100), 1.0)
    restarted = GatewayStatus(1, ProcessState.READY, "local", 1, "", 0, 0, services=[])
    world.observed.observe(Sender("gateway", 2), restarted, 2.0)
    world.observed.look(2.5)
    found = world.observed.get("chat")
    assert found is not None
    before = found.rate.above(2.0)
    world.observed.look(12.5)
    assert found.rate.above(2.0) < before


def test_lengths_are_those_of_the_last_requests():
    world = World()
    world.look(tally(int(REQUESTS), num_input=10), 1.0)
    world.look(tally(int(REQUESTS / 2), num_input=40), 2.0)
    found = world.observed.get("chat")
    assert found is not None
    assert found.inputs.moments == Moments(25.0, 15.0), "half of the older ones count"
    world.look(tally(int(2 * REQUESTS), num_input=70), 3.0)
    assert found.inputs.moments == Moments(70.0, 0.0), "none does"


def test_nothing_seen_has_no_length():
    world = World()
    world.look(tally(0), 1.0)
    found = world.observed.get("chat")
    assert found is None or found.inputs.moments == Moments(0.0, 0.0)


def test_what_was_late_is_judged_once():
    world = World()
    world.look(tally(10, late=3), 1.0)
    world.look(tally(10, late=1), 2.0)
    assert list(world.observed.judge()) == [("chat", 20, 4)]
    assert list(world.observed.judge()) == [("chat", 0, 0)]
