"""The interpreter of transition tables: what is legal, what is ignored, and when a deadline comes first."""

from enum import Enum
from typing import NamedTuple

import pytest

from kvtransfer.machine import STORY_LENGTH, Machine, ProtocolError, Rule
from kvtransfer.protocol import DeadlinePassed


class Light(Enum):
    RED = "red"
    GREEN = "green"
    OUT = "out"


class Turned(NamedTuple):
    to: str = ""


class Broken(NamedTuple):
    pass


class Honked(NamedTuple):
    pass


class TrafficLight(Machine[Light, object, str]):
    """Turns green when it is told to, red again after two seconds by itself, and out when its settling says so."""

    tolerated = frozenset({Honked})

    def __init__(self) -> None:
        super().__init__(Light.RED)
        self.green_since = 0.0
        self.times_asked = 0

    def _find_deadline(self) -> float | None:
        self.times_asked += 1
        return self.green_since + 2.0 if self.state is Light.GREEN else None

    def _settle(self, now: float) -> None:
        if self.state is Light.RED and now >= 100.0:
            self.state = Light.OUT
            self._emit("out")

    def _on_turned(self, event: Turned, now: float) -> None:
        self.green_since = now
        self._emit(f"green {event.to}".strip())

    def _on_deadline(self, event: DeadlinePassed, now: float) -> None:
        self._emit("red")


TrafficLight.rules = {
    Light.RED: {Turned: Rule(Light.GREEN, TrafficLight._on_turned)},
    Light.GREEN: {
        Turned: Rule(Light.GREEN, TrafficLight._on_turned),
        DeadlinePassed: Rule(Light.RED, TrafficLight._on_deadline),
    },
    Light.OUT: {},
}


@pytest.fixture
def light() -> TrafficLight:
    return TrafficLight()


def test_an_event_changes_the_state_and_has_effects_once(light: TrafficLight):
    assert light.handle(Turned("left"), 1.0) == ["green left"]
    assert light.state is Light.GREEN
    assert light.expire(1.0) == []


def test_a_deadline_that_has_passed_comes_before_the_event(light: TrafficLight):
    light.handle(Turned(), 1.0)
    assert light.handle(Turned(), 3.0) == ["red", "green"]
    assert light.next_deadline() == 5.0


@pytest.mark.parametrize(("now", "effects"), [(2.99, []), (3.0, ["red"]), (50.0, ["red"])])
def test_nothing_expires_before_its_time(light: TrafficLight, now: float, effects: list[str]):
    light.handle(Turned(), 1.0)
    assert light.expire(now) == effects
    assert light.expire(now) == []


def test_transitions_without_an_event_follow_those_with_one(light: TrafficLight):
    light.handle(Turned(), 98.5)
    assert light.expire(101.0) == ["red", "out"]
    assert light.state is Light.OUT


def test_what_is_tolerated_is_counted_and_changes_nothing(light: TrafficLight):
    for _ in range(2):
        assert light.handle(Honked(), 1.0) == []
    assert (light.state, light.ignored["Honked"]) == (Light.RED, 2)


def test_an_illegal_event_raises_with_what_happened_before(light: TrafficLight):
    light.handle(Turned(), 1.0)
    with pytest.raises(ProtocolError, match="Broken is illegal") as raised:
        light.handle(Broken(), 2.0)
    assert raised.value.story == ["1.000 red: Turned"]


def test_only_the_last_events_are_told(light: TrafficLight):
    for number in range(2 * STORY_LENGTH):
        light.handle(Turned(), number / 1000)
    with pytest.raises(ProtocolError) as raised:
        light.handle(Broken(), 0.05)
    assert len(raised.value.story) == STORY_LENGTH
    assert raised.value.story[-1] == "0.031 green: Turned"


def test_a_deadline_is_worked_out_anew_only_after_an_event(light: TrafficLight):
    light.handle(Turned(), 1.0)
    assert [light.next_deadline() for _ in range(5)] == [3.0] * 5
    asked = light.times_asked
    light.next_deadline()
    assert light.times_asked == asked
    light.handle(Honked(), 1.5)
    light.next_deadline()
    assert light.times_asked == asked + 1
