"""Algorithm 1, scored by arithmetic."""

import pytest

from router.placement.search.greedy import allocate, best_first, greedy, group_rate
from router.placement.search.partition import first_fit, partitions
from router.placement.search.plan import Group, Plan
from router.placement.search.room import homeless
from tests.router.placement.worlds import Fluid, assert_in_memory, catalogue, cluster, random_world, traffic
from tests.seeds import each_seed

SEEDS = range(40)


def plans(seed, **options):
    hosts, services, asked = random_world(seed)
    return services, greedy(partitions(hosts, services), services, asked, Fluid(asked, **options))


@each_seed(SEEDS)
def test_memory_is_never_exceeded(seed):
    services, made = plans(seed)
    for one in made:
        assert_in_memory(one.plan, services)


@each_seed(SEEDS)
def test_every_service_is_placed_or_reported(seed):
    services, made = plans(seed)
    for one in made:
        reported = homeless(one.plan, services)
        assert set(reported) == set(services.services) - one.plan.services
        assert all(line.startswith(f"{name}: ") for name, line in reported.items())


@each_seed(SEEDS)
def test_all_are_placed_wherever_first_fit_could_place_them(seed):
    hosts, services, asked = random_world(seed)
    for groups in partitions(hosts, services):
        if not first_fit(groups, services, services.services):
            [one] = greedy([groups], services, asked, Fluid(asked))
            assert one.plan.services == set(services.services)


@each_seed(SEEDS)
def test_the_same_world_gives_the_same_plans(seed):
    assert plans(seed)[1] == plans(seed)[1]


@each_seed(SEEDS)
def test_it_ends_when_nothing_can_be_added(seed):
    services, made = plans(seed)
    for one in made:
        for group in one.plan.groups:
            for name in services.services:
                assert name in group.services or not services.fits((*group.services, name), group.num_devices)


def steps(groups, services, asked):
    """Group and service of each addition."""
    evaluator, allocation = Fluid(asked), allocate(groups, services, asked)
    plan = next(allocation)
    while True:
        try:
            after = allocation.send(evaluator([plan])[0])
        except StopIteration:
            return
        [(old, new)] = [pair for pair in zip(plan.groups, after.groups, strict=True) if pair[0] != pair[1]]
        yield new.id, *(set(new.services) - set(old.services))
        plan = after


def test_the_most_unserved_service_goes_to_the_group_with_the_lowest_rate():
    services = catalogue({"rare": 30.0, "often": 30.0, "some": 30.0})
    asked = traffic({"rare": 1.0, "often": 20.0, "some": 4.0})
    [groups, *_] = partitions(cluster(2), services)
    assert list(steps(groups, services, asked)) == [
        ("node-0/0", "often"),  # nothing is served yet: the one with the most requests
        ("node-0/1", "often"),  # three quarters of them are still late
        ("node-0/0", "some"),
        ("node-0/1", "rare"),  # some is served worse, but it has a place, and this is the last one
    ]


def test_a_large_service_that_nobody_asks_for_is_not_pushed_out():
    services = catalogue({"large": 60.0, "busy": 13.0})
    asked = traffic({"large": 0.01, "busy": 100.0})
    for one in greedy(partitions(cluster(2), services), services, asked, Fluid(asked)):
        assert one.plan.services == {"large", "busy"}


def test_rates_are_for_each_device_and_shared_by_devices():
    one, two = Group.of_devices("n", 0, 1).plus("a"), Group.of_devices("n", 1, 3).plus("a").plus("b")
    plan, asked = Plan((one, two)), traffic({"a": 8.0, "b": 3.0})
    assert group_rate(one, plan, asked) == 2.0
    assert group_rate(two, plan, asked) == 3.0


def test_a_kept_promise_counts_before_more_attainment():
    asked = traffic({"a": 100.0, "b": 1.0})
    promised = Fluid(asked, promise=0.04)

    def plan(*held):
        return Plan(tuple(Group.of_devices("n", i, 1).plus(name) for i, name in enumerate(held)))

    [only_a, both] = promised([plan("a", "a"), plan("a", "b")])
    assert only_a.attainment > both.attainment
    assert only_a.short == ["b"]
    assert not both.short
    assert both.rank > only_a.rank


def test_a_plan_with_a_place_for_all_goes_before_a_better_one_without():
    services, asked = catalogue({"a": 60.0, "b": 60.0, "c": 60.0}), traffic({"a": 30.0, "b": 30.0, "c": 1.0})
    made = greedy(partitions(cluster(4), services), services, asked, Fluid(asked, promise=0.9))
    assert any(one.plan.services < set(services.services) for one in made)  # on groups of 4, one is left out
    assert made[0].plan.services == set(services.services)


def best(hosts, services, asked, pruned):
    return best_first(greedy(partitions(hosts, services, pruned=pruned), services, asked, Fluid(asked)))[0]


@each_seed(range(25))
def test_pruning_loses_nothing_where_all_services_fit_on_all_groups(seed):
    _, _, asked = random_world(seed)
    services = catalogue(dict.fromkeys(asked.services, 10.0), sizes=(1, 2, 4))
    with_it, without = (best(cluster(4), services, asked, pruned).score for pruned in (True, False))
    assert with_it.attainment == pytest.approx(without.attainment, abs=0.02)
