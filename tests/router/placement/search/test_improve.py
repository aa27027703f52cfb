"""Local search, scored by arithmetic."""

from random import Random

import pytest

from mesh.wire.control import Role
from router.placement.search.greedy import Scored, best_first, greedy
from router.placement.search.improve import improve
from router.placement.search.partition import partitions
from router.placement.search.plan import Group, Plan, has_all_phases
from router.placement.search.search import search
from tests.router.placement.worlds import Fluid, assert_in_memory, catalogue, cluster, random_world, traffic
from tests.seeds import each_seed

SEEDS = range(25)


def never(_):
    return False


def started(seed, **options):
    hosts, services, asked = random_world(seed)
    evaluator = Fluid(asked, **options)
    return services, evaluator, best_first(greedy(partitions(hosts, services), services, asked, evaluator))[0]


def improved(seed, num_batches=30, **options):
    services, evaluator, start = started(seed, **options)
    return (
        services,
        start,
        improve([start], services, evaluator, Random(seed), lambda done: done >= num_batches, never)[0],
    )


@each_seed(SEEDS)
def test_it_never_gets_worse_and_what_it_finds_is_a_plan(seed):
    services, start, found = improved(seed, phase_gain=1.5)
    assert found.rank >= start.rank
    assert found.plan.services >= start.plan.services
    assert found.plan.num_devices == start.plan.num_devices
    assert has_all_phases(found.plan, found.plan.services)
    devices = [(g.host, g.first + index) for g in found.plan.groups for index in range(g.num_devices)]
    assert len(set(devices)) == len(devices)
    assert_in_memory(found.plan, services)
    assert all(group.services == tuple(sorted(group.services)) for group in found.plan.groups)


@each_seed(SEEDS)
def test_the_same_seed_finds_the_same_plan(seed):
    assert improved(seed) == improved(seed)


def test_it_mends_what_the_greedy_order_got_wrong():
    services, asked = catalogue({"a": 60.0, "b": 60.0}), traffic({"a": 14.0, "b": 4.0})
    wrong = Plan(tuple(Group.of_devices("n", i, 1).plus(name) for i, name in enumerate("abbb")))
    evaluator = Fluid(asked)
    start = Scored(wrong, *evaluator([wrong]))
    found = improve([start], services, evaluator, Random(0), lambda done: done >= 40, never)[0]
    assert start.score.attainment < 0.6
    assert found.score.attainment == 1.0


def test_it_gives_engines_to_one_phase_where_that_pays():
    services, asked = catalogue({"a": 60.0}), traffic({"a": 30.0})
    evaluator = Fluid(asked, phase_gain=2.0)
    [start] = greedy(partitions(cluster(4), services)[:1], services, asked, evaluator)
    found = improve([start], services, evaluator, Random(0), lambda done: done >= 40, never)[0]
    assert {group.role for group in found.plan.groups} == {Role.PREFILL, Role.DECODE}
    assert found.score.attainment == 1.0 > start.score.attainment


@each_seed(SEEDS)
def test_the_whole_search_answers_the_best_that_it_saw(seed):
    hosts, services, asked = random_world(seed)
    evaluator = Fluid(asked, phase_gain=1.5)
    found = search(hosts, services, asked, evaluator, Random(seed), lambda done: done >= 10)
    assert found.best.rank >= found.greedy.rank
    assert found.best.plan.number == 1
    assert set(found.homeless) == set(services.services) - found.best.plan.services
    again = search(hosts, services, asked, evaluator, Random(seed), lambda done: done >= 10, present=found.best.plan)
    assert again.best.rank >= found.best.rank
    assert again.best.plan.number == 2


def test_it_ends_when_there_is_no_other_plan():
    services, asked = catalogue({"a": 60.0}, sizes=[1]), traffic({"a": 50.0})
    [start] = greedy(partitions(cluster(2), services), services, asked, Fluid(asked))
    batches = []
    improve([start], services, Fluid(asked), Random(0), lambda done: batches.append(done) or done >= 1000, never)
    assert len(batches) < 50


@pytest.mark.parametrize(("rate", "is_near"), [(0.1, True), (30.0, False)])
def test_it_ends_near_to_what_no_plan_can_beat(rate, is_near):
    services, asked = catalogue({"a": 60.0, "b": 60.0}), traffic({"a": rate, "b": rate})
    batches = []
    evaluator = Fluid(asked)
    search(cluster(8), services, asked, evaluator, Random(0), lambda done: batches.append(done) or done >= 10)
    assert len(batches) == (1 if is_near else 11)
