"""Random changes of a plan: each kind comes, none that does not fit, and most are about who is served worst."""

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from mesh.wire.control import Role
from router.placement.search.neighbours import FOCUS, Changes
from router.placement.search.plan import Group, Plan, has_all_phases
from router.placement.search.score import Score, ServiceScore
from tests.router.placement.worlds import assert_in_memory, catalogue

Held = tuple[tuple[str, ...], ...]
ROOMY = {"a": 20.0, "b": 20.0}  # GiB of 72: an engine holds both
TIGHT = {"a": 60.0, "b": 60.0}  # or one
NUM_DRAWS = 400


def plan(*held: str, size: int = 1) -> Plan:
    groups = (Group.of_devices("n", size * number, size) for number in range(len(held)))
    return Plan(tuple(group.holding(services) for group, services in zip(groups, held, strict=True)))


def drawn(start: Plan, weights: Mapping[str, float], *, may_cut: bool = False, num_late: int = 5) -> list[Plan]:
    score = Score({"a": ServiceScore(10, num_late, 10.0), "b": ServiceScore(10, 0, 1.0)})
    changes = Changes(start, score, catalogue(weights, sizes=(1, 2)), Random(0), may_cut=may_cut)
    return [found for _ in range(NUM_DRAWS) if (found := changes.draw()) is not None]


def held(found: Plan) -> Held:
    return tuple(group.services for group in found.groups)


def roles(found: Plan) -> tuple[Role, ...]:
    return tuple(group.role for group in found.groups)


@pytest.mark.parametrize("weights", [ROOMY, TIGHT], ids=["roomy", "tight"])
@pytest.mark.parametrize("start", [plan("a", "b", "b"), plan("ab", "b", size=2), plan("a", "a", "b", "b")], ids=held)
def test_every_change_serves_what_was_served_in_the_memory_that_there_is(start: Plan, weights: Mapping[str, float]):
    for found in drawn(start, weights, may_cut=True):
        assert found.services == {"a", "b"}
        assert has_all_phases(found, found.services)
        assert found.num_devices == start.num_devices
        assert_in_memory(found, catalogue(weights, sizes=(1, 2)))


def test_services_are_added_where_they_fit():
    assert {("a", "b"), ("b",)} <= {services for one in drawn(plan("a", "b"), ROOMY) for services in held(one)}
    assert {held(one) for one in drawn(plan("a", "b"), TIGHT)} <= {(("a",), ("b",)), (("b",), ("a",))}


def test_services_are_dropped_moved_and_take_the_place_of_others():
    found = {held(one) for one in drawn(plan("ab", "b"), ROOMY)}
    assert (("a",), ("b",)) in found, "dropped"
    assert (("b",), ("a", "b")) in found, "moved"
    assert {(("a",), ("b",)), (("a", "b"), ("a",))} <= found, "in the place of another"


def test_two_services_change_places_though_neither_fits_beside_the_other():
    assert (("b",), ("a",)) in {held(one) for one in drawn(plan("a", "b"), TIGHT)}


def test_an_engine_of_one_phase_has_another_for_the_other():
    found = {roles(one) for one in drawn(plan("a", "a"), {"a": 20.0, "b": 20.0}) if held(one) == (("a",), ("a",))}
    assert {(Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)} <= found
    assert all(set(one) != {Role.PREFILL} and set(one) != {Role.DECODE} for one in found)


def test_groups_are_joined_and_split_only_where_devices_may_be_cut():
    start = plan("a", "b")
    sizes = {tuple(group.num_devices for group in one.groups) for one in drawn(start, ROOMY, may_cut=True)}
    assert sizes == {(1, 1), (2,)}
    assert {len(one.groups) for one in drawn(start, ROOMY)} == {2}
    halves = {held(one) for one in drawn(plan("ab", size=2), ROOMY, may_cut=True)}
    assert {(("a", "b"), ("a", "b")), (("a",), ("b",)), (("b",), ("a",))} <= halves


def test_most_changes_are_about_the_service_that_is_served_worst():
    """All requests that are late are of `a`."""
    start = plan("", "", "a", "b")
    added = Counter(held(one)[0] for one in drawn(start, ROOMY) if held(one)[0] and len(held(one)[0]) == 1)
    assert added["a",] > FOCUS * added.total()
    assert added["b",] > 0
