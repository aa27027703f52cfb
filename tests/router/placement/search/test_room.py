"""Services that a plan has no place for are named, with what is missing."""

from router.placement.observe.requirements import GIB, Catalogue
from router.placement.search.plan import Group, Plan
from router.placement.search.room import homeless
from tests.router.placement.worlds import catalogue, footprint


def test_a_plan_with_all_services_lacks_nothing():
    services = catalogue({"a": 1.0, "b": 1.0})
    assert homeless(Plan((Group.of_devices("n", 0, 1).holding("ab"),)), services) == {}


def test_a_service_without_a_profile_for_any_group_is_told_so():
    services = Catalogue({"a": {size: footprint("a", 1.0, size) for size in (8, 4)}}, 72 * GIB)
    assert homeless(Plan((Group.of_devices("n", 0, 2),)), services) == {
        "a": "a: has profiles for 4, 8 devices; no group has so many"
    }


def test_a_group_that_is_full_is_not_the_roomiest():
    services = catalogue({"a": 1.0, "b": 1.0, "c": 100.0, "d": 60.0})
    shared, lone = Group.of_devices("n", 0, 1).holding("ab"), Group.of_devices("n", 1, 1).plus("d")
    assert "n/1 has the most room, 11.0 GiB" in homeless(Plan((shared, lone)), services)["c"]


def test_a_service_without_a_place_is_named_with_what_the_roomiest_group_lacks():
    services = catalogue({"a": 40.0, "b": 39.0, "c": 34.0})
    plan = Plan((Group.of_devices("n", 0, 1).plus("a"), Group.of_devices("n", 1, 1).plus("b")))
    assert homeless(plan, services) == {
        "c": "c: weights and its longest request take 35.0 GiB; n/1 has the most room, 32.0 GiB: 3.0 GiB too little"
    }


def test_a_service_without_a_place_is_told_if_others_are_too_many():
    services = catalogue({"a": 1.0, "b": 1.0, "c": 1.0})
    plan = Plan((Group.of_devices("n", 0, 1).holding("ab"),))
    assert homeless(plan, services) == {"c": "c: each group that it has a profile for holds 2 services already"}
