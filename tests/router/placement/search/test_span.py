"""Devices of running engines are joined and split where a topology allows it, and only then."""

from random import Random

from router.placement.search.neighbours import Changes
from router.placement.search.plan import Group, Plan
from router.placement.search.score import Score, ServiceScore
from router.placement.search.span import DeviceSpan, every_way, regrouped, regroupings
from tests.router.placement.worlds import catalogue

NARROW = (Group("n-0", "h", 0, 1, ("a",)), Group("n-1", "h", 1, 1, ("b",)))
WIDE = Group("w", "h", 0, 2, ("a", "b"))
SPAN = DeviceSpan(WIDE, NARROW)
OTHER = Group("o", "h", 2, 1, ("a", "b"))
PRESENT = Plan((*NARROW, OTHER))


def test_a_plan_has_one_way_of_using_devices_or_none_whole():
    joined = regrouped(PRESENT, NARROW, (WIDE,))
    assert joined.engines == ["o", "w"]
    assert SPAN.is_whole(PRESENT)
    assert SPAN.is_whole(joined)
    assert not SPAN.is_whole(Plan((NARROW[0], OTHER)))


def test_what_must_change_of_the_devices_is_told_by_the_engines():
    assert [str(one) for one in regroupings(PRESENT.engines, ["o", "w"], [SPAN])] == [
        "w takes the place of n-0 and n-1"
    ]
    assert [str(one) for one in regroupings(["o", "w"], PRESENT.engines, [SPAN])] == ["n-0 and n-1 take the place of w"]
    assert regroupings(PRESENT.engines, PRESENT.engines, [SPAN]) == ()


def test_all_devices_are_joined_or_none():
    assert [plan.engines for plan in every_way(PRESENT, [SPAN])] == [["n-0", "n-1", "o"], ["o", "w"]]
    assert every_way(PRESENT, []) == [PRESENT]


def drawn(plan: Plan, spans: tuple[DeviceSpan, ...]) -> set[tuple[str, ...]]:
    score = Score({name: ServiceScore(10, 5, 10.0) for name in ("a", "b")})
    changes = Changes(plan, score, catalogue({"a": 1.0, "b": 1.0}, sizes=(1, 2)), Random(0), may_cut=False, spans=spans)
    found = [changes.draw() for _ in range(200)]
    return {tuple(one.engines) for one in found if one is not None}


def test_local_search_joins_and_splits_what_may_be():
    assert drawn(PRESENT, (SPAN,)) == {("n-0", "n-1", "o"), ("o", "w")}
    assert drawn(Plan((OTHER, WIDE)), (SPAN,)) == {("o", "w"), ("n-0", "n-1", "o")}
    assert drawn(PRESENT, ()) == {("n-0", "n-1", "o")}
