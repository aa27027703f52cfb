"""Where frames go."""

import pytest

from bench.nodes.switch import Wiring

A, B, C = (bytes([2, 0, 0, 0, 0, number]) for number in (1, 2, 3))
ALL = b"\xff" * 6


@pytest.fixture
def wiring() -> Wiring:
    found = Wiring()
    for node in "abc":
        found.plug(node)
    return found


def test_a_frame_for_all_reaches_all_others(wiring: Wiring):
    assert wiring.targets("a", ALL + A) == ["b", "c"]


def test_a_frame_goes_to_everybody_until_its_target_has_spoken(wiring: Wiring):
    assert wiring.targets("a", B + A) == ["b", "c"]
    assert wiring.targets("b", A + B) == ["a"]
    assert wiring.targets("a", B + A) == ["b"]


def test_a_cut_is_of_both_directions_and_of_no_other_pair(wiring: Wiring):
    wiring.cuts = {frozenset("ab")}
    assert wiring.targets("a", ALL + A) == ["c"]
    assert wiring.targets("b", ALL + B) == ["c"]
    assert wiring.targets("c", ALL + C) == ["a", "b"]


def test_who_is_unplugged_is_forgotten(wiring: Wiring):
    assert wiring.targets("b", ALL + B) == ["a", "c"]
    wiring.unplug("b")
    assert wiring.targets("a", B + A) == ["c"]
