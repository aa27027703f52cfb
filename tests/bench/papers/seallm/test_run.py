"""SeaLLM's testbed: what is asked, where each system puts services, and what runs come to."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bench.harness.paired import Compared
from bench.papers.seallm import devices
from bench.papers.seallm.__main__ import Run, ratios
from bench.papers.seallm.lengths import TABLE_1, Spread, clusters
from bench.papers.seallm.multiplexing import LEAST_PART, memory_quotas, sm_quotas, split_profile
from bench.papers.seallm.plans import Effort, Planner, dedicated, group_loads, make_plan, muxserve, planned_for
from bench.papers.seallm.replacing import Replaceable, WithCosts, engine_id, regrouping
from bench.papers.seallm.run import Case, Result, Served, result_of, run_case
from bench.papers.seallm.scene import (
    Inputs,
    Scene,
    Source,
    World,
    dealt,
    in_runs,
    make_world,
    noisy,
    read_sources,
)
from bench.papers.seallm.systems import OURS, SYSTEMS, make_testbed
from engines.costs.linear import decode_step_s, prefill_s
from router.placement.observe.interval import Threshold
from router.placement.observe.requirements import Catalogue, Cluster
from router.placement.observe.running_mesh import rounded
from router.placement.observe.traffic import Arrival, Traffic
from router.placement.search.plan import Group, Plan
from router.placement.search.question import Question, SearchFailed
from router.placement.search.score import Score, ServiceScore
from router.placement.search.span import DeviceSpan
from simulation.engines.physics import SmQuota
from simulation.loads.rows import TraceError
from simulation.loads.trace_request import TraceRequest
from simulation.placement.daemon import SearchResult
from simulation.placement.evaluator import FEWEST_REQUESTS

QUICK = Effort(history=20, history_s=2.0, batches=1, seen_s=20.0)
SCENE = Scene(6.0, 4.0, num_devices=16)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Arrivals that are like those of the results."""
    folder, random = tmp_path_factory.mktemp("inputs"), Random(0)
    lines = [f"{random.uniform(0, 1200)},f{min(random.randint(0, 30), random.randint(0, 30))}" for _ in range(400)]
    (folder / "arrivals").write_text("\n".join(["arrival_s,function", *lines, ""]))
    return Inputs(folder / "arrivals", Spread(context=4096))


@pytest.fixture(scope="module")
def world(inputs: Inputs) -> World:
    return make_world(inputs)


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_services_are_clusters_that_differ_in_length_and_have_all_models(world: World):
    models = Counter(service.model for service in world.services.values())
    assert models == dict.fromkeys(("llama2-7b", "opt-6.7b", "llama2-13b", "llama2-70b"), 2)
    means = sorted(service.mean_s for service in world.services.values())
    assert means[-1] > 10 * means[0]
    assert sum(len(service.lengths) for service in world.services.values()) == 3000
    assert all(r.num_input + r.num_output <= 4096 for s in world.services.values() for r in s.lengths)


@pytest.mark.parametrize("cv", [1.0, 3.0])
def test_sources_send_at_the_rate_that_is_asked_for_and_when_their_windows_say(cv: float):
    source = Source((1.0, 0.0, 3.0, 0.0), cv)
    times = list(source.times(50.0, 100.0, Random(3)))
    assert times == sorted(times)
    assert len(times) == pytest.approx(5000, rel=0.12)
    by_window = Counter(int(at_s // 25) for at_s in times)
    assert set(by_window) == {0, 2}
    assert by_window[2] == pytest.approx(3 * by_window[0], rel=0.3)


def test_functions_of_a_trace_are_read_and_dealt(tmp_path: Path):
    path = tmp_path / "azure.csv"
    path.write_text("arrival_s,function,duration_s\n0,a,1\n1,b,1\n2,a,1\n120,a,1\n")
    sources = read_sources(path)
    assert [source.weight * 12 for source in sources] == [3, 1]
    assert dealt(sources, 2) == [sources[:1], sources[1:]]
    with pytest.raises(TraceError, match="2 sources of requests are too few for 3 services"):
        dealt(sources, 3)
    path.write_text("arrival_s,function\n0,a\n")
    with pytest.raises(TraceError, match="want arrivals at several times"):
        read_sources(path)


def test_plans_are_made_for_the_rates_of_a_longer_time(world: World):
    seen = Counter(one.service for one in world.requests(Scene(SCENE.rate, 60.0, seed=-1)))
    asked = world.history(SCENE, 60.0, 3000.0)
    for name in world.services:
        assert asked.rate(name) == pytest.approx(seen[name] / 60.0, rel=0.15)


# --- where services are put -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_devices", [16, 48])
def test_dedicated_services_share_no_engine_and_have_equal_parts_of_the_devices(world: World, num_devices: int):
    """The evaluator likes engines of two devices best, and of one for s0."""
    catalogue, names = world.catalogue, world.catalogue.services

    def evaluate(plans):
        return [
            Score({name: ServiceScore(1, abs(_size(plan, name) - (1 if name == "s0" else 2)), 0.0) for name in names})
            for plan in plans
        ]

    plan = dedicated(devices.cluster(num_devices), catalogue, evaluate)
    for name in names:
        sizes = [group.num_devices for group in plan.groups_of(name)]
        least = catalogue.least_devices(name, 8)
        assert sizes == [max(least, 1 if name == "s0" else 2)] * (num_devices // len(names) // sizes[0])
    assert all(len(group.services) == 1 for group in plan.groups)
    _check_devices(plan, num_devices)


def _size(plan, name):
    return max((group.num_devices for group in plan.groups_of(name)), default=99)


def _check_devices(plan, num_devices):
    used = Counter()
    for group in plan.groups:
        assert group.first + group.num_devices <= devices.DEVICES_PER_HOST
        used.update((group.host, group.first + index) for index in range(group.num_devices))
    assert max(used.values()) == 1
    assert used.total() <= num_devices


def test_muxserve_gives_each_service_one_place_and_leaves_nothing_unserved_that_can_be_served(world: World):
    asked = world.history(SCENE, 60.0, 60.0)
    plan = muxserve(devices.cluster(16), world.catalogue, asked)
    assert Counter(name for group in plan.groups for name in group.services) == dict.fromkeys(world.services, 1)
    loads = group_loads(world.catalogue, asked)
    busy = [sum(loads[name, group.num_devices] for name in group.services) for group in plan.groups]
    assert max(busy) < 1
    _check_devices(plan, 16)


def test_quotas_share_the_memory_and_hold_a_longest_request_each(world: World):
    plan = make_plan(Planner.MUXSERVE, world, SCENE, QUICK)
    group = next(one for one in plan.groups if one.services)
    other = next(name for name in world.services if world.services[name].model == "llama2-7b")
    parts = memory_quotas(replace(group, num_devices=8).holding([*group.services[:1], other]), world)
    assert sum(parts.values()) == pytest.approx(1.0)
    testbed = make_testbed(SYSTEMS["muxserve, turns"], plan, world, {})
    for engine in testbed.topology.engines:
        assert engine.kv_quotas.keys() == set(engine.services)
        for name, part in engine.kv_quotas.items():
            footprint = world.catalogue.footprints[name][testbed.profiles[engine.id].num_devices]
            assert part * testbed.profiles[engine.id].kv_memory_bytes >= footprint.kv_bytes
    assert not any(engine.kv_quotas for engine in make_testbed(SYSTEMS[OURS], plan, world, {}).topology.engines)


def test_engines_that_the_daemon_changes_have_memory_for_weights_apart_and_costs_of_all_that_fits(world: World):
    plan = make_plan(Planner.SEARCH, world, SCENE, QUICK)
    testbed = make_testbed(SYSTEMS["replaced"], plan, world, {})
    assert testbed.topology.placement is not None
    for engine in testbed.topology.engines:
        profile, weight_bytes = testbed.profiles[engine.id], engine.weight_memory_bytes
        memory_bytes = profile.num_devices * world.catalogue.device_bytes
        assert weight_bytes + profile.kv_memory_bytes == memory_bytes
        assert weight_bytes >= sum(profile.services[name].weight_bytes for name in engine.services)
        assert set(profile.services) == {
            name for name, sizes in world.catalogue.footprints.items() if profile.num_devices in sizes
        }


def test_engines_are_joined_with_their_neighbours_or_halved_and_none_is_of_two_pairs(world: World):
    small = [name for name, service in world.services.items() if service.model in ("llama2-7b", "opt-6.7b")]
    sizes = {("a", 0): 2, ("a", 2): 2, ("a", 4): 4, ("b", 0): 1}
    groups = [
        Group.of_devices(*at, size).holding([name]) for (at, size), name in zip(sizes.items(), small, strict=True)
    ]
    engines = {engine_id(one.group): one for one in regrouping(groups, world)}
    running = {name for name, one in engines.items() if not one.settings.get("is_standby")}
    assert running == {engine_id(group) for group in groups}
    spans = {name: set(one.settings["spans"]) for name, one in engines.items() if one.settings.get("spans")}
    assert spans == {"a-0-3": {"a-0-1", "a-2-3"}, "a-4-7": {"a-4-5", "a-6-7"}}
    for one in engines.values():
        assert one.group.services, "it starts with something"
        assert _weight_bytes(one) <= one.settings["weight_memory_bytes"]


def _weight_bytes(one: Replaceable) -> int:
    return sum(one.profile.services[name].weight_bytes for name in one.group.services)


def test_the_daemon_plans_with_what_services_cost_where_no_engine_has_had_them(world: World):
    groups = {size: Group.of_devices("a", 0, size).plus("s0") for size in (2, 4)}
    engines = {group.id: Replaceable.of(group, world).profile for group in groups.values()}
    known = world.catalogue.footprints["s0"][4]
    asked = Traffic.recorded({"s0": [Arrival(0.0, 100, 10)]}, 1.0)
    present, cluster = Plan(()), Cluster({}, (), (DeviceSpan(groups[4], (groups[2],)),))
    learnt = Catalogue({"s0": {4: replace(known, kv_bytes=known.profile.kv_bytes(500))}}, 1)
    question = Question(1, present, cluster, learnt, asked, {}, FEWEST_REQUESTS, Threshold(), 0.0)
    heard = list[Question]()

    def search(question: Question) -> SearchResult:
        heard.append(question)
        return SearchResult(SearchFailed("nothing"), 0.0)

    WithCosts(search, engines)(question)
    [footprints] = heard[0].catalogue.footprints.values()
    assert footprints.keys() == {2, 4}
    for size, one in footprints.items():
        assert one.profile.prefill == world.catalogue.profile("s0", size).prefill
        assert one.kv_bytes == 500 * world.catalogue.profile("s0", size).kv_bytes_per_token
        assert one.profile.weight_bytes == 0, "they are counted apart"
    [span] = heard[0].cluster.spans
    assert [group.kv_bytes for group in span.groups] == [
        rounded(engines[group.id].kv_memory_bytes) for group in span.groups
    ]


def test_a_plan_for_the_first_window_knows_nothing_of_what_comes_later(world: World):
    scene = Scene(6.0, 60.0, num_devices=16)
    first = world.foreseen(scene, 60.0, 5.0)
    early = [request for request in world.requests(scene) if request.at_s < 5.0]
    assert first.rate("s0") == pytest.approx(sum(one.service == "s0" for one in early) / 5.0, abs=0.6)
    assert planned_for(Planner.FIRST, world, scene, QUICK).services == world.foreseen(scene, 20 / 6.0, 5.0).services


def test_shares_of_sms_go_by_load_and_a_lone_service_has_all(world: World):
    group = make_plan(Planner.MUXSERVE, world, SCENE, QUICK).groups[0]
    loads = {("s0", group.num_devices): 0.3, ("s1", group.num_devices): 0.1}
    shares = sm_quotas(group.holding(["s0", "s1"]), loads)
    assert sum(quota.prefill for quota in shares.values()) == pytest.approx(1.0)
    assert shares["s1"].decode == pytest.approx(LEAST_PART + (1 - 2 * LEAST_PART) / 4)
    assert sm_quotas(group.holding(["s0"]), loads) == {"s0": SmQuota(1.0, 1.0)}


def test_a_part_of_the_sms_makes_prompts_slower_than_decodes(world: World):
    group = make_plan(Planner.MUXSERVE, world, SCENE, QUICK).groups[0]
    [name] = group.services[:1]
    whole = world.catalogue.profile(name, group.num_devices)
    part = split_profile(group, world, name, 0.5, SmQuota(0.5, 0.5))
    assert prefill_s(part.prefill, 2000) / prefill_s(whole.prefill, 2000) == pytest.approx(2.0, rel=0.2)
    assert decode_step_s(part.decode, 4, 0) / decode_step_s(whole.decode, 4, 0) == pytest.approx(1.0, rel=0.1)
    assert decode_step_s(part.decode, 4, 9000) - decode_step_s(part.decode, 4, 0) > 1.02 * (
        decode_step_s(whole.decode, 4, 9000) - decode_step_s(whole.decode, 4, 0)
    ), "tables of split blocks go to the devices"


# --- what comes of runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", Planner)
def test_every_plan_places_every_service_and_every_system_serves_everybody(planner: Planner, inputs: Inputs):
    world = make_world(inputs)
    plan = make_plan(planner, world, SCENE, QUICK)
    assert plan.services == set(world.services)
    _check_devices(plan, 16)
    systems = tuple(name for name, system in SYSTEMS.items() if system.planner is planner)
    for result in run_case(Case(planner, systems, inputs, SCENE, QUICK)).values():
        assert result.num_requests == len(world.requests(SCENE))
        assert result.num_failed == 0
        assert 0 < result.ttft_s < 10


def test_promises_and_latencies_are_relative_to_execution_times():
    served = [Served(10.0, 2.0, 5.0, 1.0, 0.1), Served(11.0, 2.0, 2.0, 3.0, None)]
    kept_at = (0.0, 0.0, 0.25, 0.5, 0.5)
    assert result_of(served, 4) == Result(4, 2, 3.75, 5.5, attainment=0.25, ttft_s=2.0, tpot_s=0.1, kept_at=kept_at)


def test_ratios_are_means_of_pairs_that_served_the_same():
    def result(mean, kept):
        return Result(1, 0, mean, mean, kept, mean, mean)

    found = {
        Run(OURS, 2.0, 0, 0): result(2.0, 0.9),
        Run("muxserve", 2.0, 0, 0): result(4.0, 0.9),
        Run(OURS, 2.0, 1, 0): result(3.0, 0.8),
        Run("muxserve", 2.0, 1, 0): result(24.0, 0.4),
        Run("muxserve", 2.0, 2, 0): result(99.0, 0.4),
    }
    better = ratios(found, "muxserve", 2.0)
    assert better["mean"] == better["p99"]
    assert better["mean"].mean == pytest.approx(4.0)
    assert better["mean"].low < 4.0 < better["mean"].high
    assert better["attainment"].mean == pytest.approx(2**0.5)
    assert ratios(found, "muxserve", 5.0) == {}


def test_a_single_pair_has_no_interval():
    one = Result(1, 0, 2.0, 2.0, 0.5, 2.0, 2.0)
    found = {Run(OURS, 2.0, 0, 0): one, Run("ours-F", 2.0, 0, 0): replace(one, mean=3.0, attainment=0.0)}
    better = ratios(found, "ours-F", 2.0)
    assert better["mean"] == Compared(pytest.approx(1.5))
    assert better["attainment"].mean == float("inf")


# --- lengths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [0.5, 1.0])
def test_lengths_have_the_means_of_the_papers_table(cv: float):
    requests = Spread(cv).requests(20_000, Random(0))
    for number, means in enumerate(TABLE_1):
        own = requests[number * 20_000 : (number + 1) * 20_000]
        for mean, measured in ((means.prompt, [r.num_input for r in own]), (means.answer, [r.num_output for r in own])):
            assert sum(measured) / len(measured) == pytest.approx(mean, rel=0.12)


def test_prompts_are_cut_to_the_context_that_answers_leave():
    requests = Spread(1.0, 4096).requests(2000, Random(0))
    assert max(request.num_input + request.num_output for request in requests) == 4096
    assert min(request.num_input for request in requests) >= 1


def test_clusters_are_alike_within_and_none_is_empty():
    groups = clusters(Spread().requests(200, Random(1)), 8, Random(2))
    assert sum(map(len, groups)) == 600
    assert all(groups)
    sizes = [sum(one.num_input + one.num_output for one in group) / len(group) for group in groups]
    assert sizes[-1] > 20 * sizes[0]


def coming(services: str) -> list[TraceRequest]:
    """One a second of each service that is named; prompts tell which of its requests it is."""
    count = Counter[str]()
    requests = []
    for number, name in enumerate(services):
        count[name] += 1
        requests.append(TraceRequest(float(number), count[name], 10, service=name))
    return requests


def test_requests_of_a_service_come_in_a_row():
    requests = in_runs(coming("abacab"), 2)
    assert "".join(str(request.service) for request in requests) == "aabbca"
    assert [request.num_input for request in requests] == [1, 2, 1, 2, 1, 3]
    assert [request.at_s for request in requests] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert in_runs(coming("abacab"), 1) == coming("abacab")


def test_answers_differ_from_what_is_known_within_what_fits():
    requests = [TraceRequest(0.0, 10, 100, service="s")] * 400
    lengths = [request.num_output for request in noisy(requests, 0.5, {"s": 210}, Random(0))]
    assert min(lengths) == 1
    assert max(lengths) == 200
    assert 90 < sum(lengths) / len(lengths) < 110
    assert noisy(requests, 0.0, {"s": 210}, Random(0)) == requests
