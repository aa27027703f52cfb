"""What a plan makes of roles that changed since it was searched for."""

from mesh.wire.control import Role
from router.placement.search.plan import Group, Plan


def plan(*roles: Role, services=("a",)) -> Plan:
    return Plan(tuple(Group(f"e{index}", "local", index, 1, services, role) for index, role in enumerate(roles)))


BEFORE = plan(Role.PREFILL, Role.DECODE, Role.MULTIPLEX)


def test_a_role_that_the_plan_left_as_it_was_stays_as_it_is_by_now():
    wanted, now = plan(Role.PREFILL, Role.MULTIPLEX, Role.MULTIPLEX), plan(Role.MULTIPLEX, Role.DECODE, Role.MULTIPLEX)
    assert wanted.after_flips(BEFORE, now) == plan(Role.MULTIPLEX, Role.MULTIPLEX, Role.MULTIPLEX)


def test_a_role_that_the_plan_changes_is_the_plans():
    wanted, now = plan(Role.DECODE, Role.DECODE, Role.MULTIPLEX), plan(Role.MULTIPLEX, Role.DECODE, Role.MULTIPLEX)
    assert wanted.after_flips(BEFORE, now) == wanted


def test_no_flip_takes_a_phase_from_the_plan():
    before, wanted, now = (
        plan(Role.PREFILL, Role.MULTIPLEX),
        plan(Role.PREFILL, Role.DECODE),
        plan(Role.DECODE, Role.DECODE),
    )
    assert wanted.after_flips(before, now) == wanted


def test_engines_that_came_since_change_nothing():
    wanted = plan(Role.PREFILL, Role.DECODE)
    assert wanted.after_flips(BEFORE, Plan(())) == wanted
