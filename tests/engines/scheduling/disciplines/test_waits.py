"""Who has waited too long, by the threshold of its service."""

from math import inf

import pytest

from engines.scheduling.disciplines.entrant import Entrant
from engines.scheduling.disciplines.waits import FEW, Waits
from tests.engines.conftest import MakeSequence

THRESHOLDS = {"a": 2.0, "b": 5.0, "never": inf}


class World:
    def __init__(self, make_sequence: MakeSequence) -> None:
        self.waits = Waits(THRESHOLDS.__getitem__)
        self._make = make_sequence
        self._number = 0

    def came(self, service: str = "a", at: float = 0.0, priority: int = 0) -> Entrant:
        self._number += 1
        request = self._make(f"r{self._number}", arrived_at=at, service=service, priority=priority)
        entrant = Entrant(request, self._number)
        self.waits.came(entrant)
        return entrant

    def ended(self, entrant: Entrant) -> None:
        entrant.is_here = False
        self.waits.ended(entrant)


@pytest.fixture
def world(make_sequence: MakeSequence) -> World:
    return World(make_sequence)


def test_one_starves_once_it_has_waited_for_longer_than_its_services_threshold(world: World):
    entrant = world.came()
    assert world.waits.starved(2.0) == []
    assert not world.waits.is_starved(entrant, 2.0)
    assert world.waits.starved(2.01) == [entrant]
    assert world.waits.is_starved(entrant, 2.01)


def test_the_time_of_its_own_steps_is_no_waiting(world: World):
    entrant, other = world.came(), world.came(at=0.5)
    entrant.used_s = 1.0
    assert world.waits.starved(2.7) == [other], "the one that ran has waited 1.7 s"
    assert world.waits.starved(3.1) == [other], "it has waited longest, although it came later"


def test_a_service_without_a_threshold_never_starves(world: World):
    world.came("never")
    assert world.waits.starved(1e9) == []


def test_each_service_and_priority_names_the_one_that_waited_longest(world: World):
    low, _, high = world.came(at=0.0), world.came(at=1.0), world.came(at=0.5, priority=1)
    world.came("b")
    assert world.waits.starved(4.0) == [low, high]


def test_those_that_starve_come_by_priority_and_then_by_waiting(world: World):
    late, early, high = world.came(at=1.0), world.came(at=0.0), world.came(at=1.5, priority=1)
    fresh = world.came(at=3.0)
    assert list(world.waits.starved_of("a", 4.0)) == [high, early, late]
    assert list(world.waits.starved_of("a", 5.5)) == [high, early, late, fresh], "all are kept for the next time"


def test_who_has_ended_is_passed_over(world: World):
    first, second = world.came(at=0.0), world.came(at=1.0)
    world.ended(first)
    assert world.waits.starved(9.0) == [second]
    world.ended(second)
    assert world.waits.starved(9.0) == []


def test_the_next_to_starve_is_of_another_service(world: World):
    assert world.waits.next_starves_at("a") == inf
    world.came("a", at=1.0)
    world.came("b", at=4.0)
    assert world.waits.next_starves_at("a") == 9.0
    assert world.waits.next_starves_at("b") == 3.0


def test_those_that_ended_do_not_pile_up(world: World):
    world.came(at=1e6)  # in front of nobody: what ended before it stands behind the head for ever
    for _ in range(10 * FEW):
        world.ended(world.came(at=1e6 + 1))
    [entries] = world.waits._entries.values()
    assert len(entries) <= 2 * 2 + FEW
