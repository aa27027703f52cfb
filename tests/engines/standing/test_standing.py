"""Which orders change what an engine is: its role, and its place in a plan."""

import pytest

from engines.standing.standing import Standing
from mesh.wire.control import Announce, EnginePlace, Role, SetRole


def place(number: int) -> Announce:
    return Announce(EnginePlace(number, 1, ("chat",), Role.DECODE))


def a_standing(**fields: object) -> Standing:
    return Standing(Role.PREFILL, has_news=False, **fields)  # type: ignore[arg-type]


def test_a_new_role_is_news_and_counts():
    standing = a_standing()
    assert standing.set_role(SetRole(Role.DECODE, 0))
    assert (standing.role, standing.num_role_changes, standing.has_news) == (Role.DECODE, 1, True)


@pytest.mark.parametrize(
    ("order", "fields"),
    [
        (SetRole(Role.DECODE, 0), {"keeps_role": True}),
        (SetRole(Role.DECODE, 0), {"num_role_changes": 1}),
        (SetRole(Role.DECODE, 2), {"num_role_changes": 1}),
        (SetRole(Role.PREFILL, 0), {}),
        (SetRole(Role.DECODE, 0, plan=6), {"place": place(7).place}),
    ],
    ids=["it keeps its role", "another change came first", "a change of before", "it has the role", "an older plan"],
)
def test_an_order_that_does_not_apply_changes_nothing(order: SetRole, fields: dict[str, object]):
    standing = a_standing(**fields)
    before = standing.num_role_changes
    assert not standing.set_role(order)
    assert (standing.role, standing.num_role_changes, standing.has_news) == (Role.PREFILL, before, False)


@pytest.mark.parametrize("plan", [None, 7, 8])
def test_a_change_that_knows_the_newest_plan_counts(plan: int | None):
    standing = a_standing(place=place(7).place)
    assert standing.set_role(SetRole(Role.DECODE, 0, plan=plan))


def test_only_a_newer_plan_gives_a_place():
    standing = a_standing()
    assert [standing.hear_plan(place(number)) for number in (3, 3, 2, 4)] == [True, False, False, True]
    assert standing.place is not None
    assert standing.place.number == 4
