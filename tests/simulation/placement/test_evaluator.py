"""Plans scored by the simulator: in parts and whole, on Llama 2 and A100s."""

import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from bench.papers.seallm import devices
from mesh.rules import Trigger
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, Rescheduling, ServiceSpec, Topology
from mesh.wire.control import Role
from router.placement.observe.conduct import Conduct
from router.placement.observe.running_mesh import catalogue_of
from router.placement.observe.traffic import Arrival, Traffic
from router.placement.search.cells import cells, islands
from router.placement.search.greedy import Scored, greedy
from router.placement.search.partition import partitions
from router.placement.search.plan import Group, Plan
from router.placement.search.search import search
from simulation.cluster import Simulation
from simulation.engines.direct import DirectEngines
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import SharedProfile
from simulation.garbage import rare_collections
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.placement.evaluator import Simulated, _topology, _trace
from tests.router.placement.worlds import made_up_traffic
from tests.seeds import each_seed
from tests.simulation.small import SERVICE, Profile, run, topology

CATALOGUE = devices.catalogue({"chat": "llama2-7b", "code": "llama2-13b"})
SLOS = dict.fromkeys(CATALOGUE.services, devices.SLO)


def traffic(rate=4.0, seed=0):
    return made_up_traffic(list(CATALOGUE.services), rate, 10.0, Random(seed))


def evaluator(asked, **options):
    return Simulated(CATALOGUE, asked, SLOS, slo_factor=devices.SLO_FACTOR, **options)


def plan(*held, size=1, role=Role.MULTIPLEX):
    groups = [Group(f"g{number}", "n", 0, size, tuple(services), role) for number, services in enumerate(held)]
    return Plan(tuple(groups))


def test_models_of_one_engine_share_what_their_weights_leave():
    profiles = {name: CATALOGUE.profile(name, 1) for name in CATALOGUE.services}
    shared = SharedProfile.of(profiles)
    used = shared.kv_memory_bytes + sum(profile.weight_bytes for profile in profiles.values())
    assert used == pytest.approx(CATALOGUE.device_bytes, rel=1e-6)
    assert SharedProfile.of({"chat": profiles["chat"]}).kv_memory_bytes == profiles["chat"].kv_memory_bytes


def test_a_lone_engine_serves_as_it_does_in_a_mesh():
    random = Random(2)
    trace = [
        TraceRequest(0.4 * n, random.randint(50, 3000), random.randint(1, 150), service=SERVICE) for n in range(60)
    ]
    what = topology({"engine": Role.MULTIPLEX}, "join_shortest_queue")
    profiles = {"engine": Profile()}
    alone = {record.id: record for record in DirectEngines(what, profiles, seed=0, physics=Physics()).run(trace)}
    in_mesh = {record.id: record for record in run(what, trace, coasts=True)}
    assert alone.keys() == in_mesh.keys()
    for request, record in in_mesh.items():
        assert alone[request].ttft_s == pytest.approx(record.ttft_s, abs=2e-3)
        assert alone[request].e2e_s == pytest.approx(record.e2e_s, abs=2e-3)


@each_seed(1, most=3)
def test_engines_without_gateways_serve_as_those_of_a_mesh(seed):
    asked = traffic(rate=14.0, seed=seed)
    setting = evaluator(asked)._setting
    [island] = islands(plan(["chat"], ["chat", "code"], ["chat", "code"]))
    trace, _ = _trace(setting, island)
    what, profiles = _topology(setting, island)
    direct = {r.id: r for r in DirectEngines(what, profiles, seed=0, physics=Physics()).run(trace)}
    records = []
    Simulation(what, profiles, seed=0, physics=Physics(), slo=SloRule(), coasts=True).run("chat", trace, records.append)
    assert direct.keys() == {record.id for record in records}
    for figure in ("ttft_s", "e2e_s"):
        means = [fmean(getattr(one, figure) for one in those) for those in (direct.values(), records)]
        assert means[0] == pytest.approx(means[1], rel=0.1, abs=0.02)


def test_the_ideal_is_what_requests_take_alone_and_beats_every_plan():
    singles = {name: {1: by_size[1]} for name, by_size in CATALOGUE.footprints.items()}
    calm, crowded = (
        Simulated(replace(CATALOGUE, footprints=singles), traffic(rate=rate), SLOS, slo_factor=5.0)
        for rate in (0.2, 12.0)
    )
    plans = [plan(["chat"], ["code"]), plan(["chat", "code"]), plan(["chat"], ["chat", "code"])]
    [alone] = calm.exact(plans[:1])
    assert alone.normalized_latency == pytest.approx(calm.ideal().normalized_latency, rel=0.01)
    for score in crowded.exact(plans):
        assert score.attainment <= crowded.ideal().attainment
        assert score.normalized_latency > crowded.ideal().normalized_latency


def test_parts_and_whole_agree_where_nothing_is_dispatched():
    evaluate = evaluator(traffic())
    for what in (plan(["chat"], ["code"]), plan(["chat", "code"]), plan(["chat"])):
        [parts], [exact] = evaluate([what]), evaluate.exact([what])
        assert parts.attainment == pytest.approx(exact.attainment, abs=0.02)
        assert parts.normalized_latency == pytest.approx(exact.normalized_latency, rel=0.02)


def test_requests_without_an_engine_are_late_and_without_requests_nothing_is():
    evaluate = evaluator(traffic())
    [nothing, half] = evaluate([plan(), plan(["chat"])])
    assert nothing.attainment == 0.0
    assert half.services["code"].attainment == 0.0 < half.services["chat"].attainment
    [idle] = evaluator(Traffic(10.0, {}))([plan(["chat"])])
    assert (idle.attainment, idle.num_requests) == (1.0, 0)
    assert evaluate.exact([plan()])[0].attainment == 0.0


def test_what_cannot_be_held_is_late():
    """A prompt that the pool can never hold is refused, and counts."""
    asked = Traffic.recorded({"chat": [Arrival(0.0, 10**6, 10)], "code": [Arrival(0.0, 10, 10)]}, 1.0)
    [score] = evaluator(asked)([plan(["chat", "code"])])
    assert score.services["chat"].num_late == 1
    assert score.services["code"].num_late == 0


@pytest.mark.parametrize("role", [Role.MULTIPLEX, Role.PREFILL])
def test_who_waits_already_delays_others_and_is_not_judged(role):
    asked, shared = traffic(2.0), plan(["chat", "code"])
    if role is Role.PREFILL:
        shared = Plan(tuple(replace(shared.groups[0], id=str(role), role=role) for role in (role, Role.DECODE)))
    scores = [evaluator(asked.with_waiting({"chat": number}))([shared])[0] for number in (0, 100, 300)]
    assert len({score.num_requests for score in scores}) == 1
    latencies = [score.normalized_latency for score in scores]
    assert latencies[0] < latencies[1] < latencies[2]
    assert scores[2].attainment < scores[0].attainment - 0.1
    assert evaluator(asked.with_waiting({"chat": 300})).ideal() == evaluator(asked).ideal()


def test_each_part_gets_its_share_of_who_waits():
    judge = evaluator(traffic().with_waiting({"chat": 30, "code": 5}))
    waiting = [
        _trace(judge._setting, cell)[1].count(None)
        for cell, number in cells(plan(["chat"], ["chat", "code"], ["chat"]), judge._demand).items()
        for _ in range(number)
    ]
    assert sum(waiting) == pytest.approx(35, abs=2)
    assert min(waiting) >= 5


@pytest.mark.parametrize(("num_input", "block"), [(400, 16), (3000, 32), (3000 * 8, 256)])
def test_blocks_are_a_small_part_of_a_request(num_input, block):
    asked = Traffic.recorded({"chat": [Arrival(0.1 * n, num_input, 100) for n in range(20)]}, 10.0)
    judge = Simulated(CATALOGUE, asked, SLOS)
    [cell] = islands(plan(["chat", "code"]))
    [engine] = _topology(judge._setting, cell)[0].engines
    assert engine.block_size == block


def test_what_a_simulation_leaves_behind_in_cycles_is_freed_at_once():
    """A search makes hundreds of them, and collections are rare meanwhile."""
    judge, alive = evaluator(traffic()), weakref.WeakSet()
    with rare_collections(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectEngines, "__init__", _noting(DirectEngines.__init__, alive))
        judge([plan(["chat", "code"])])
        assert judge.num_simulated == 1
        assert len(alive) == 0


def _noting(begin, alive):
    def noted(engines, *args, **options):
        begin(engines, *args, **options)
        alive.update(queue.engine for queue in engines._queues)

    return noted


def test_equal_engines_are_simulated_once():
    evaluate = evaluator(traffic())
    evaluate([plan(["chat"], ["chat"], ["code"], ["chat"], ["code"])])
    assert evaluate.num_simulated == 2
    evaluate([plan(["chat"], ["code"], ["chat"], ["chat"], ["code"])])
    assert evaluate.num_simulated == 2


def test_a_plan_is_worth_what_the_meshs_own_policy_makes_of_it():
    """In overload, who refuses what would be late lets nobody wait for long, and who foresees promises keeps more."""
    crowded, held = traffic(rate=14.0), plan(["chat", "code"], ["chat", "code"])
    fewest = Conduct(PolicySpec("join_shortest_queue"))
    fewest_score, elastic, foresight = (
        Simulated(CATALOGUE, crowded, SLOS, conduct=replace(fewest, policy=PolicySpec(name))).exact([held])[0]
        for name in ("join_shortest_queue", "elastic", "foresight")
    )
    assert elastic.normalized_latency < 0.6 * fewest_score.normalized_latency
    assert foresight.normalized_latency < fewest_score.normalized_latency
    assert num_late(foresight) < num_late(fewest_score)


def num_late(score):
    return sum(service.num_late for service in score.services.values())


@pytest.mark.parametrize("rescheduling", [None, Rescheduling(triggers=tuple(Trigger))])
def test_slices_and_moves_are_part_of_it(rescheduling):
    conduct = Conduct(PolicySpec("tropical"), slice_tokens=64, rescheduling=rescheduling)
    judge, held = Simulated(CATALOGUE, traffic(), SLOS, conduct=conduct), plan(["chat", "code"], ["chat"])
    [parts], [exact] = judge([held]), judge.exact([held])
    assert parts.num_requests == exact.num_requests > 0
    assert exact.attainment > 0.9


def test_more_engines_serve_better():
    few, more = evaluator(traffic(rate=12.0))([plan(["chat", "code"]), plan(*[["chat"], ["code"]] * 3)])
    assert few.attainment < 0.8 < more.attainment
    assert few.normalized_latency > more.normalized_latency


def test_engines_of_one_phase_are_simulated_together():
    evaluate, asked = evaluator(traffic()), traffic()
    groups = [Group("p", "n", 0, 1, ("chat",), Role.PREFILL), Group("d", "n", 1, 1, ("chat",), Role.DECODE)]
    [score] = evaluate([Plan(tuple(groups))])
    assert evaluate.num_simulated == 1
    assert score.services["chat"].num_requests == len(asked.services["chat"].requests)
    assert score.services["chat"].attainment > 0.9


def test_workers_find_the_same():
    asked, what = traffic(), [plan(["chat"], ["code"]), plan(["chat", "code"]), plan(["chat"], ["chat", "code"])]
    with ThreadPoolExecutor(1) as pool:
        assert evaluator(asked, pool=pool)(what) == evaluator(asked)(what)
    setting = evaluator(asked)._setting
    assert pickle.loads(pickle.dumps(setting)) == setting


def test_a_search_on_the_simulator():
    hosts, asked = devices.cluster(2), traffic(rate=10.0)
    evaluate = evaluator(asked)
    found = search(hosts, CATALOGUE, asked, evaluate, Random(0), lambda done: done >= 2)
    assert found.best.score == evaluator(asked).exact([found.best.plan])[0]
    assert found.best.rank >= found.greedy.rank
    assert not found.homeless
    for one in greedy(partitions(hosts, CATALOGUE), CATALOGUE, asked, evaluate):
        assert found.greedy.rank >= Scored(one.plan, *evaluate.exact([one.plan])).rank


def test_engines_that_tell_of_themselves_are_judged_as_what_they_are():
    """KV goes from one that prefills to one that decodes, and takes the time of its bytes."""
    profile = SharedProfile.of({name: CATALOGUE.profile(name, 1) for name in CATALOGUE.services})
    services = tuple(ServiceSpec(name, "model", devices.SLO) for name in CATALOGUE.services)
    spec = EngineSpec("e", Role.MULTIPLEX, ("chat", "code"))
    mesh = Topology("mesh", Path("mesh"), services, (spec,), (GatewaySpec("g"),))
    simulation = Simulation(mesh, {"e": profile}, seed=0, physics=Physics(), slo=SloRule())
    simulation.run("chat", [TraceRequest(0.0, 8, 8)], lambda record: None)
    told = catalogue_of(
        [simulation.engines["e"].core.status(0.0)], dict.fromkeys(CATALOGUE.services, 99), max_sharing=2
    )
    held = Plan(tuple(Group(str(role), "n", 0, 1, ("chat", "code"), role) for role in (Role.PREFILL, Role.DECODE)))
    asked = traffic(8.0)
    ours, theirs = (
        Simulated(catalogue, asked, SLOS, slo_factor=devices.SLO_FACTOR).exact([held])[0]
        for catalogue in (CATALOGUE, told)
    )
    assert theirs.normalized_latency == pytest.approx(ours.normalized_latency, rel=0.1)
    assert theirs.num_late == pytest.approx(ours.num_late, abs=3)


def test_an_engine_has_the_memory_for_kv_that_it_has():
    """Beside one whose weights leave more, it holds fewer requests at a time."""
    [group] = plan(["chat"]).groups
    asked = traffic(40.0)
    small, large = (
        evaluator(asked).exact([Plan((replace(group, kv_bytes=kv_bytes),))])[0].services["chat"]
        for kv_bytes in (CATALOGUE.profile("chat", 1).kv_bytes(2000), None)
    )
    assert small.normalized_latency > 1.5 * large.normalized_latency
