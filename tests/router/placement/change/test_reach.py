"""Plans that a mesh can get to: dealt to engines that hold what they need, and without what stands in the way."""

from itertools import permutations
from random import Random

import pytest

from mesh.sizes import GIB
from mesh.wire.control import Role
from router.placement.change.obstacles import Obstacles
from router.placement.change.reach import Reach, cheapest
from router.placement.change.replacement import loads
from router.placement.observe.requirements import Cluster
from router.placement.search.plan import Group, Plan
from router.placement.search.search import search
from tests.router.placement.worlds import Fluid, catalogue, traffic
from tests.seeds import each_seed

NAMES = "abcd"


def plan(*held: str, sizes: tuple[int, ...] = (), role: Role = Role.MULTIPLEX) -> Plan:
    """Engine ``n`` holds the n-th services."""
    devices = sizes or (1,) * len(held)
    return Plan(
        tuple(
            Group(f"e{number}", "host", number, devices[number], tuple(sorted(services)), role)
            for number, services in enumerate(held)
        )
    )


def held(found: Plan) -> list[str]:
    return ["".join(group.services) for group in found.groups]


def random_plan(random: Random, sizes: tuple[int, ...]) -> Plan:
    """Each service has a place."""
    some = ["".join(random.sample(NAMES, random.randint(0, 2))) for _ in sizes]
    missing = [name for name in NAMES if name not in "".join(some)]
    some[0] = "".join(sorted({*some[0], *missing}))
    return plan(*some, sizes=sizes)


def limits(most_gib: int, engines: int) -> Obstacles:
    """Weights take 1 GiB each."""
    return Obstacles(dict.fromkeys(NAMES, GIB), {f"e{number}": most_gib * GIB for number in range(engines)})


@each_seed(range(60))
def test_no_way_to_deal_costs_is_cheaper(seed):
    random = Random(seed)
    size = random.randint(1, 6)
    costs = [[random.choice((0.0, 1.0, 2.0, 1e6, random.random())) for _ in range(size)] for _ in range(size)]
    chosen = cheapest(costs)
    assert sorted(chosen) == list(range(size))

    def total(columns):
        return sum(costs[row][column] for row, column in enumerate(columns))

    assert total(chosen) == pytest.approx(min(map(total, permutations(range(size)))))


def test_engines_get_the_places_that_they_have_least_to_load_for():
    reach = Reach(plan("ab", "c", "d"), Obstacles())
    assert held(reach.nearest(plan("cd", "ab", "c"))) == ["ab", "c", "cd"]
    assert held(reach.nearest(plan("ab", "c", "d"))) == ["ab", "c", "d"]


def test_places_stay_on_engines_of_their_size_and_roles_go_with_them():
    reach = Reach(plan("a", "b", "c", sizes=(2, 1, 1)), Obstacles())
    assert held(reach.nearest(plan("b", "a", "c", sizes=(2, 1, 1)))) == ["b", "a", "c"]
    there = plan("b", "c", role=Role.PREFILL).with_groups(Group("e1", "host", 1, 1, ("c",), Role.DECODE))
    found = Reach(plan("c", "b"), Obstacles()).nearest(there)
    assert [(group.services, group.role) for group in found.groups] == [(("c",), Role.DECODE), (("b",), Role.PREFILL)]


def test_an_engine_without_room_is_passed_over_though_another_one_has_more_to_load():
    roomy = Obstacles(dict.fromkeys(NAMES, GIB), {"e0": 2 * GIB, "e1": 4 * GIB})
    reach = Reach(plan("ab", "cd"), roomy)
    assert held(reach.nearest(plan("ac", "b"))) == ["b", "ac"]


@each_seed(range(40))
def test_dealing_loads_no_more_and_a_part_has_no_obstacle_and_a_place_for_all(seed):
    random = Random(seed)
    sizes = tuple(random.choice((1, 2)) for _ in range(random.randint(1, 5)))
    present, wanted = random_plan(random, sizes), random_plan(random, sizes)
    reach = Reach(present, limits(random.randint(1, 3), len(sizes)))
    nearest = reach.nearest(wanted)
    assert sorted((g.num_devices, g.services) for g in nearest.groups) == sorted(
        (g.num_devices, g.services) for g in wanted.groups
    )
    if reach.includes(wanted):
        assert reach.includes(nearest)
        assert len(loads(present, nearest)) <= len(loads(present, wanted))
    part = reach.part(nearest)
    assert reach.includes(part)
    assert part.services >= present.services
    if reach.includes(nearest):
        assert part == nearest


@each_seed(range(12))
def test_a_search_finds_only_plans_that_can_be_had_and_better_ones_among_them(seed):
    """Six engines, room for three copies on each, and all of the load moved to the service that only one engine has."""
    random, services = Random(seed), catalogue(dict.fromkeys(NAMES, 10.0), sizes=(1,))
    present = plan("ab", "ab", "ac", "bc", "ad", "bc")
    obstacles, asked = limits(3, 6), traffic({"a": 2.0, "b": 2.0, "c": 2.0, "d": 16.0})
    evaluator = Fluid(asked)
    found = search(
        Cluster({}, present.groups), services, asked, evaluator, random, lambda done: done >= 10, present, obstacles
    )
    assert obstacles.against(present, found.best.plan) is None
    [before] = evaluator.exact([present])
    assert found.best.score.attainment > before.attainment + 0.2
    assert found.best.score == evaluator.exact([found.best.plan])[0]
