"""SeaLLM's testbed: what is asked, where each system puts services, what runs come to, and that runs are kept."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from bench.papers.seallm.testbed.arrivals import Source, dealt, read_sources
from bench.papers.seallm.testbed.cells import Cell, Lab
from bench.papers.seallm.testbed.figures import AXES, FIGURES, Range, cells_of
from bench.papers.seallm.testbed.lengths import Files, all_kinds, clusters
from bench.papers.seallm.testbed.plans import Effort, dedicated, group_loads, make_plan, muxserve
from bench.papers.seallm.testbed.run import Served, make_topology, quotas, result_of
from bench.papers.seallm.testbed.scene import Inputs, Scene, make_world
from bench.papers.seallm.testbed.systems import (
    ADAPTIVE,
    ALPASERVE,
    DEDICATED,
    MUXSERVE,
    OURS,
    SYSTEMS,
    WITHOUT_REPLACEMENT,
    Planner,
)
from bench.papers.seallm.testbed.tables import best_ratios
from bench.placement import setting
from mesh.errors import UserError
from router.placement.search.question import Question
from router.placement.search.score import Score, ServiceScore
from simulation.loads.rows import TraceError
from simulation.placement.daemon import ModelledSearch

INPUTS = Inputs()
QUICK = Effort(history=20, history_s=2.0, batches=1, seen_s=20.0)
SCENE = Scene(6.0, 4.0)


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_without_files_services_are_clusters_that_differ_in_length_and_have_all_models():
    services = make_world(INPUTS).services
    assert Counter(service.model for service in services.values()) == dict.fromkeys(
        ("llama2-7b", "opt-6.7b", "llama2-13b", "llama2-70b"), 2
    )
    means = sorted(service.mean_s for service in services.values())
    assert means[-1] > 10 * means[0]
    assert all(r.num_input + r.num_output <= setting.LONGEST for s in services.values() for r in s.lengths)


def test_clusters_are_those_that_lengths_are_nearest_to():
    kinds = all_kinds(Files(), Random(1))
    found = clusters(kinds, 5, Random(2))
    assert sum(map(len, found)) == len(kinds)
    longest = [max(one.num_input + one.num_output for one in cluster) for cluster in found]
    assert longest[0] < longest[-1]


def test_lengths_come_from_files(tmp_path: Path):
    chats, code = tmp_path / "chats.csv", tmp_path / "code.csv"
    chats.write_text("input_tokens,output_tokens\n11,12\n4000,500\n")
    code.write_text("task_id,prompt_pieces,solution_pieces\nx,21,22\n")
    seen = {(one.num_input, one.num_output) for one in all_kinds(Files(chats, chats, code), Random(0))}
    assert seen == {(11, 12), (21, 22)}  # what is longer than the models can take is left out


@pytest.mark.parametrize("cv", [1.0, 3.0])
def test_sources_send_at_the_rate_that_is_asked_for_and_when_their_windows_say(cv: float):
    source = Source((1.0, 0.0, 3.0, 0.0), cv)
    times = list(source.times(50.0, 100.0, Random(3)))
    assert times == sorted(times)
    assert len(times) == pytest.approx(5000, rel=0.12)
    by_window = Counter(int(at_s // 25) for at_s in times)
    assert set(by_window) == {0, 2}
    assert by_window[2] == pytest.approx(3 * by_window[0], rel=0.3)


def test_patterns_of_both_kinds_are_read_and_others_are_told_what_is_wanted(tmp_path: Path):
    azure, servegen, other = (tmp_path / name for name in ("azure.csv", "servegen.csv", "other.csv"))
    azure.write_text("arrival_s,function,duration_s\n0,a,1\n1,b,1\n2,a,1\n120,a,1\n")
    servegen.write_text("client,window_start_s,rate_rps,cv,dist\n0,0,2,3,Gamma\n0,600,4,3,Gamma\n1,600,9,1,Gamma\n")
    other.write_text("when,who\n1,2\n")
    assert [source.weight * 12 for source in read_sources(azure)] == [3, 1]
    assert read_sources(servegen) == [Source((0.0, 9.0), 1.0), Source((2.0, 4.0), 3.0)]
    with pytest.raises(TraceError, match="want the columns arrival_s, function or client"):
        read_sources(other)
    with pytest.raises(TraceError, match="1 sources of requests are too few for 2 services"):
        dealt([Source((1.0,), 1.0)], 2)


def test_so_many_in_a_row_are_of_one_service_and_come_when_they_would_have():
    world = make_world(INPUTS)
    plain, skewed = (world.requests(replace(SCENE, in_a_row=count)) for count in (0, 8))
    assert [one.at_s for one in plain] == [one.at_s for one in skewed]
    assert all(len({one.service for one in skewed[i : i + 8]}) == 1 for i in range(0, len(skewed), 8))


def test_errors_change_the_lengths_of_answers_and_nothing_else():
    world = make_world(INPUTS)
    plain, wrong = (world.requests(replace(SCENE, error=error)) for error in (0.0, 4.0))
    assert [(one.at_s, one.service, one.num_input) for one in plain] == [
        (one.at_s, one.service, one.num_input) for one in wrong
    ]
    assert max(b.num_output / a.num_output for a, b in zip(plain, wrong, strict=True)) > 3
    assert min(one.num_output for one in wrong) == 1


def test_plans_are_made_for_the_rates_of_a_longer_time_and_for_no_skew_or_error():
    world = make_world(INPUTS)
    seen = Counter(one.service for one in world.requests(Scene(SCENE.rate, 60.0, seed=-1)))
    asked = world.history(replace(SCENE, in_a_row=8, error=4.0), 60.0, 3000.0)
    for name in world.services:
        assert asked.rate(name) == pytest.approx(seen[name] / 60.0, rel=0.15)


# --- where services are put -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_devices", [16, 32, 48])
def test_dedicated_services_share_no_engine_and_have_equal_parts_of_the_devices(num_devices: int):
    """The evaluator likes engines of two devices best, and of one for s0."""
    catalogue = make_world(INPUTS).catalogue

    def evaluate(plans):
        return [
            Score({name: ServiceScore(1, abs(_size(plan, name) - (1 if name == "s0" else 2)), 0.0) for name in names})
            for plan in plans
        ]

    names = catalogue.services
    plan = dedicated(setting.cluster(num_devices), catalogue, evaluate)
    share = num_devices // len(names)
    for name in names:
        sizes = [group.num_devices for group in plan.groups_of(name)]
        least = catalogue.least_devices(name, 8)
        assert sizes == [max(least, 1 if name == "s0" else 2)] * (share // sizes[0])
    assert all(len(group.services) == 1 for group in plan.groups)
    _check_devices(plan, num_devices)


def _size(plan, name):
    return max((group.num_devices for group in plan.groups_of(name)), default=99)


def _check_devices(plan, num_devices):
    used = Counter()
    for group in plan.groups:
        assert group.first + group.num_devices <= setting.DEVICES_PER_HOST
        used.update((group.host, group.first + index) for index in range(group.num_devices))
    assert max(used.values()) == 1
    assert used.total() <= num_devices


@pytest.mark.parametrize("num_devices", [16, 32])
def test_muxserve_gives_each_service_one_place_and_leaves_nothing_unserved_that_can_be_served(num_devices: int):
    world = make_world(INPUTS)
    asked = world.history(replace(SCENE, rate=6.0), 60.0, 60.0)
    plan = muxserve(setting.cluster(num_devices), world.catalogue, asked)
    assert Counter(name for group in plan.groups for name in group.services) == dict.fromkeys(world.services, 1)
    loads = group_loads(world.catalogue, asked)
    busy = [sum(loads[name, group.num_devices] for name in group.services) for group in plan.groups]
    assert max(busy) < 1
    _check_devices(plan, num_devices)


def test_every_plan_places_every_service():
    world = make_world(INPUTS)
    scene = replace(SCENE, num_devices=16)
    for planner in Planner:
        plan = make_plan(planner, world, scene, QUICK)
        assert plan.services == set(world.services), planner
        _check_devices(plan, 16)


def test_quotas_share_the_memory_and_hold_a_longest_request_each():
    world = make_world(INPUTS)
    plan = make_plan(Planner.MUXSERVE, world, SCENE, QUICK)
    group = next(one for one in plan.groups if one.services)
    other = next(name for name in world.services if world.services[name].model == "llama2-7b")
    shared = replace(group, num_devices=8).holding([*group.services[:1], other])
    parts = quotas(shared, world)
    assert sum(parts.values()) == pytest.approx(1.0)
    topology, profiles = make_topology(MUXSERVE, plan, world)
    for engine in topology.engines:
        assert engine.kv_quotas.keys() == set(engine.services)
        for name, part in engine.kv_quotas.items():
            footprint = world.catalogue.footprints[name][profiles[engine.id].num_devices]
            assert part * profiles[engine.id].kv_memory_bytes >= footprint.kv_bytes
    assert not any(engine.kv_quotas for engine in make_topology(OURS, plan, world)[0].engines)


def test_where_services_come_and_go_engines_leave_room_for_their_weights():
    world = make_world(INPUTS)
    plan = make_plan(Planner.SEARCH, world, replace(SCENE, num_devices=16), QUICK)
    kept, profiles = make_topology(OURS, plan, world)
    for system, bounds in ((WITHOUT_REPLACEMENT, None), (ADAPTIVE, (30.0, 600.0))):
        topology, others = make_topology(system, plan, world)
        found = topology.placement
        assert (found and (found.shortest_s, found.longest_s)) == bounds
        for before, engine in zip(kept.engines, topology.engines, strict=True):
            room, weights = engine.weight_memory_bytes, others[engine.id].services
            memory = profiles[engine.id].kv_memory_bytes + sum(weights[name].weight_bytes for name in engine.services)
            assert others[engine.id].kv_memory_bytes + room == memory
            assert sum(weights[name].weight_bytes for name in engine.services) <= room
            assert set(before.services) <= weights.keys()
            assert all(one.weight_bytes <= room for one in weights.values())
    assert all(engine.weight_memory_bytes is None for engine in kept.engines)


# --- what comes of runs -----------------------------------------------------------------------------------------------


def test_measures_by_hand():
    served = [
        Served("a", 4.0, alone_s=1.0, mean_s=2.0, ttft_s=1.0, tpot_s=0.1),
        Served("a", 12.0, alone_s=2.0, mean_s=2.0, ttft_s=3.0, tpot_s=None),
        Served("b", 5.0, alone_s=1.0, mean_s=1.0, ttft_s=2.0, tpot_s=0.3),
    ]
    result = result_of(served, num_requests=4)
    assert (result.num_requests, result.num_failed) == (4, 1)
    assert result.mean == pytest.approx((2 + 6 + 5) / 3)
    assert (result.p99, result.p99_s) == (6.0, 12.0)
    assert result.attainment == 2 / 4  # the second one took 6 times its own 2 s, the fourth was not served
    assert (result.ttft_s, result.tpot_s) == (2.0, pytest.approx(0.2))
    assert [result.by_scale[scale] for scale in (1.0, 2.0, 5.0, 6.0)] == [0, 1 / 4, 2 / 4, 3 / 4]
    assert result.by_service == {"a": 4.0, "b": 5.0}


def test_the_greatest_ratio_of_all_scenes_is_told_with_its_scene():
    def result(mean, kept, by_scale):
        plain = result_of([Served("a", 1.0, 1.0, 1.0, 1.0, 1.0)], 1)
        return msgspec.structs.replace(plain, mean=mean, attainment=kept, by_scale=by_scale)

    dense = replace(SCENE, num_devices=16)
    answers = {
        Cell("ours", SCENE): result(2.0, 0.9, {1.0: 0.6, 5.0: 0.9}),
        Cell("muxserve", SCENE): result(3.0, 0.8, {1.0: 0.1, 5.0: 0.8}),
        Cell("ours", dense): result(3.0, 0.8, {1.0: 0.0, 5.0: 0.8}),
        Cell("muxserve", dense): result(9.0, 0.4, {1.0: 0.0, 5.0: 0.4}),
    }
    best = best_ratios(answers, "ours")["muxserve"]
    assert str(best["mean"]) == "3.00, 6/s, 16 devices"
    assert str(best["attainment"]) == "2.00, 6/s, 16 devices"
    assert str(best["scaled"]) == "6.00, 6/s, SLO scale 1"


# --- figures and what is kept -----------------------------------------------------------------------------------------


def test_figures_share_runs_and_say_what_they_vary():
    span = Range((2.0, 30.0), 30.0, num_requests=120, least_s=10.0, seeds=1)
    all_cells = cells_of(FIGURES, span)
    assert len(set(all_cells)) == len(all_cells)
    assert {cell.scene.span_s for cell in cells_of([6], span)} == {60.0, 10.0}
    assert set(cells_of([10], span)) < set(cells_of([6], span))
    assert {(cell.system, cell.scene.span_s) for cell in cells_of([9], span)} == {
        ("adaptive", 600.0),
        ("foreseen", 600.0),
        ("-A", 600.0),
    }
    assert [AXES[11][1](scene) for scene in span.scenes(11)] == [0.5, pytest.approx(2 / 3), 1.0, 2.0]
    assert {cell.planned.error for cell in cells_of([13], span)} == {0.0}


def test_a_run_is_kept_and_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lab = Lab(INPUTS, QUICK, tmp_path)
    lab.check()
    cell = Cell(DEDICATED.name, SCENE)
    assert not lab.has(cell)
    first = lab.run(cell)
    assert lab.has(cell)
    assert first.num_failed == 0
    assert first.num_requests == len(make_world(INPUTS).requests(SCENE))
    monkeypatch.setattr("bench.papers.seallm.testbed.cells.serve", None)
    monkeypatch.setattr("bench.papers.seallm.testbed.cells.make_plan", None)
    assert lab.run(cell) == first


def test_runs_of_other_inputs_are_not_mixed(tmp_path: Path):
    Lab(INPUTS, QUICK, tmp_path).check()
    Lab(INPUTS, QUICK, tmp_path).check()
    with pytest.raises(UserError, match="use another --out"):
        Lab(replace(INPUTS, num_services=4), QUICK, tmp_path).check()


def test_a_run_with_a_daemon_decides_at_the_end_of_an_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bench.papers.seallm.testbed.run.INTERVAL_S", 30.0)
    monkeypatch.setattr("bench.papers.seallm.testbed.run.SEARCH_BATCHES", 0)
    monkeypatch.setattr("router.placement.search.question.LEAST_JUDGED", 0)
    asked = []
    monkeypatch.setattr(ModelledSearch, "__call__", _listening(ModelledSearch.__call__, asked))
    scene = Scene(1.0, 45.0, num_devices=16)
    results = {name: Lab(INPUTS, QUICK, tmp_path).run(Cell(name, scene)) for name in ("-A", "adaptive")}
    assert [result.num_failed for result in results.values()] == [0, 0]
    assert [question.number for question in asked] == list(range(1, len(asked) + 1))
    assert asked, "nothing was decided"
    assert results["-A"].decisions == results["-A"].changes == []
    told = results["adaptive"].decisions
    assert [one.decision.interval for one in told] == list(range(1, len(told) + 1))
    assert told, "nothing that was decided is kept"


def test_a_daemon_that_foresees_plans_for_the_very_requests_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bench.papers.seallm.testbed.run.FORESEEN_S", 10.0)
    monkeypatch.setattr("bench.papers.seallm.testbed.run.SEARCH_BATCHES", 0)
    asked: list[Question] = []
    monkeypatch.setattr(ModelledSearch, "__call__", _listening(ModelledSearch.__call__, asked))
    scene = Scene(1.0, 45.0, num_devices=16)
    result = Lab(INPUTS, QUICK, tmp_path).run(Cell("foreseen", scene))
    assert result.num_failed == 0
    requests = make_world(INPUTS).requests(scene)
    begins = [told.at_s for told in result.decisions]
    assert len(begins) > 2
    for begin_s, question in zip(begins, asked, strict=False):
        coming = [one for one in requests if begin_s <= one.at_s < begin_s + 10.0]
        for name, service in question.drawn().services.items():
            those = [one for one in coming if one.service == name]
            assert [one.num_output for one in service.requests] == [one.num_output for one in those]
            assert service.rate == pytest.approx(len(those) / 10.0)
        assert list(question.samples()) == [question.drawn()]


def _listening(search, asked):
    def answer(self, question):
        asked.append(question)
        return search(self, question)

    return answer


@pytest.mark.parametrize("system", [OURS, ALPASERVE, MUXSERVE], ids=lambda system: system.name)
def test_every_system_serves_everybody(system, tmp_path: Path):
    result = Lab(INPUTS, QUICK, tmp_path).run(Cell(system.name, replace(SCENE, num_devices=16)))
    assert result.num_failed == 0
    assert 0 < result.ttft_s < 10
    assert SYSTEMS[system.name] is system
