from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from mesh.wire.control import Role
from router.placement.search.cells import WHAT_WEIGHTS_LEAVE, cells, islands
from router.placement.search.plan import Group, Plan
from tests.seeds import each_seed

M, P, D = Role.MULTIPLEX, Role.PREFILL, Role.DECODE


def plan(*engines):
    """Each as (devices, services, role)."""
    groups = [
        Group(f"g{number}", "n", 0, devices, tuple(sorted(services)), role)
        for number, (devices, services, role) in enumerate(engines)
    ]
    return Plan(tuple(groups))


def test_engines_for_both_phases_stand_alone_and_equal_ones_count_once():
    found = cells(plan((1, "a", M), (1, "a", M), (2, "ab", M), (1, "", M)), {"a": 4.0, "b": 0.0})
    assert {cell.engines: (dict(cell.shares), num) for cell, num in found.items()} == {
        ((1, ("a",), M, WHAT_WEIGHTS_LEAVE),): ({"a": Fraction(1, 4)}, 2),
        ((2, ("a", "b"), M, WHAT_WEIGHTS_LEAVE),): ({"a": Fraction(1, 2), "b": Fraction(1)}, 1),
    }


def test_engines_that_have_other_memory_are_others():
    same = plan((1, "a", M), (1, "a", M))
    here = same.with_groups(replace(same.groups[0], kv_bytes=8), replace(same.groups[1], kv_bytes=4))
    assert list(cells(same, {"a": 1.0}).values()) == [2]
    assert sorted(cell.engines[0][-1] for cell in cells(here, {"a": 1.0})) == [4, 8]


def test_engines_for_one_phase_of_a_service_belong_together():
    found = cells(
        plan((1, "a", P), (1, "b", P), (1, "ab", D), (1, "a", D), (1, "a", M), (1, "c", P), (1, "c", D)),
        {"a": 4.0, "b": 0.0, "c": 1.0},
    )
    assert sorted(len(cell.engines) for cell in found) == [1, 2, 4]
    [four] = [cell for cell in found if len(cell.engines) == 4]
    assert dict(four.shares) == {"a": Fraction(4, 5), "b": Fraction(1)}


@each_seed(range(50))
def test_all_requests_of_a_service_go_somewhere(seed):
    random = Random(seed)
    engines = [
        (random.choice((1, 2, 4)), random.sample("abcd", random.randint(0, 3)), random.choice(list(Role)))
        for _ in range(random.randint(1, 8))
    ]
    what = plan(*engines)
    demand = {name: random.uniform(0, 4) for name in "abcd"}
    shares, num_engines = Counter(), 0
    for cell, num in cells(what, demand).items():
        num_engines += num * len(cell.engines)
        for service, share in cell.shares:
            shares[service] += num * share
    assert shares == pytest.approx(dict.fromkeys(what.services, 1), abs=0.1)  # rounded
    assert num_engines == sum(bool(services) for _, services, _ in engines)
    assert num_engines == sum(num * len(island.engines) for island, num in islands(what).items())
    in_islands = [share for island in islands(what) for share in island.shares]
    assert sorted(in_islands) == [(service, 1) for service in sorted(what.services)], "each service is on one island"


def test_engines_are_together_if_a_chain_of_services_joins_them():
    found = islands(plan((1, "a", M), (1, "ab", P), (1, "b", D), (2, "c", M), (1, "d", M), (1, "d", D), (1, "", M)))
    assert sorted(len(island.engines) for island in found) == [1, 2, 3]
    assert {len(island.engines): [name for name, _ in island.shares] for island in found} == {
        1: ["c"],
        2: ["d"],
        3: ["a", "b"],
    }
    assert islands(plan((1, "", M))) == {}


def shares_of(what, demand):
    return {cell.engines[0][1]: dict(cell.shares) for cell in cells(what, demand)}


def test_requests_go_where_others_leave_room():
    found = shares_of(plan((1, "a", M), (1, "ab", M)), {"a": 1.0, "b": 1.0})
    assert found[("a",)] == {"a": Fraction(1)}
    assert found[("a", "b")] == {"a": Fraction(0), "b": Fraction(1)}
    found = shares_of(plan((1, "a", M), (1, "ab", M)), {"a": 2.0, "b": 1.0})
    assert found[("a", "b")] == {"a": Fraction(1, 4), "b": Fraction(1)}


def test_choices_of_one_service_make_room_for_another():
    """b can only be on the second and third, so a keeps to the first, and c to the third."""
    found = shares_of(plan((1, "a", M), (1, "ab", M), (1, "bc", M)), {"a": 1.0, "b": 1.0, "c": 1.0})
    assert found[("a",)]["a"] > 0.8
    assert found[("a", "b")]["b"] > 0.8
    assert found[("b", "c")]["c"] == 1
