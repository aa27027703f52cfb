from random import Random

from msgspec.structs import replace

from mesh.wire.control import EnginePlace, ProcessState, Role
from router.placement.change.changeover import Changeover, Patience
from router.placement.observe.running_mesh import catalogue_of, cluster_of, places, present_plan, waiting
from router.placement.search.search import search
from tests.router.cluster import M0, make_status
from tests.router.placement.worlds import Fluid, traffic


def engine(*services, **fields):
    """One that holds these, each as if it had the memory to itself: 1600 tokens."""
    return replace(make_status(M0, services=services), num_devices=1, **fields)


MESH = {
    "e0": engine("a", role=Role.PREFILL, place=EnginePlace(7, 3, ("a",), Role.PREFILL)),
    "e1": engine("b", "a", role=Role.DECODE),
    "e2": engine("a", role=Role.MULTIPLEX),
}


def test_the_plan_in_force_is_what_engines_hold():
    plan = present_plan(MESH)
    assert plan.number == 7
    assert [(group.id, group.services, group.role) for group in plan.groups] == [
        ("e0", ("a",), Role.PREFILL),
        ("e1", ("a", "b"), Role.DECODE),
        ("e2", ("a",), Role.MULTIPLEX),
    ]


def test_engines_that_leave_and_services_that_leave_are_not_in_it():
    leaving = replace(MESH["e1"].services[0], is_leaving=True)
    mesh = {**MESH, "e0": replace(MESH["e0"], state=ProcessState.DRAINING)}
    mesh["e1"] = replace(MESH["e1"], services=[leaving, MESH["e1"].services[1]])
    assert [(group.id, group.services) for group in present_plan(mesh).groups] == [("e1", ("a",)), ("e2", ("a",))]


def test_services_share_an_engine_as_far_as_their_longest_requests_fit():
    found = catalogue_of(MESH.values(), {"a": 1000, "b": 500}, max_sharing=2)
    assert found.fits(["a", "b"], 1)  # 1500 of 1600 tokens
    assert not catalogue_of(MESH.values(), {"a": 1000, "b": 700}, max_sharing=2).fits(["a", "b"], 1)
    assert found.profile("a", 1).decode == MESH["e0"].services[0].decode_cost


def test_kv_has_its_bytes_however_memory_is_measured():
    """Or what engines copy of it would take a time of its own: those that plans are judged by offload KV."""
    told = [replace(one, block_bytes=2**20 * one.block_size) for one in MESH["e1"].services]
    found = catalogue_of([replace(MESH["e1"], services=told)], {"a": 1000, "b": 700}, max_sharing=2)
    profile = found.profile("a", 1)
    assert (profile.kv_bytes_per_token, profile.kv_memory_bytes) == (2**20, 1600 * 2**20)
    assert found.footprints["a"][1].kv_bytes == 1000 * found.device_bytes // 1600
    assert not found.fits(["a", "b"], 1)
    untold = catalogue_of(MESH.values(), {"a": 1000}, max_sharing=2).profile("a", 1)
    assert untold.kv_memory_bytes // untold.kv_bytes_per_token == 1600


def test_a_search_keeps_engines_as_they_are_and_can_be_carried_out():
    asked, present = traffic({"a": 4.0, "b": 9.0}), present_plan(MESH)
    services = catalogue_of(MESH.values(), {"a": 100, "b": 100}, max_sharing=2)
    found = search(cluster_of(present), services, asked, Fluid(asked), Random(0), lambda done: done >= 20, present)
    assert [(group.id, group.num_devices) for group in found.best.plan.groups] == [("e0", 1), ("e1", 1), ("e2", 1)]
    assert found.best.score.attainment == 1.0
    assert found.best.plan.number == 8
    changeover = Changeover(8, places(found.best.plan), Patience(), now=0.0)
    assert {engine for engine, _ in changeover.orders(MESH, 0.0)} == {"e0", "e1", "e2"}


def test_who_waits_has_not_begun_on_any_engine():
    running = [replace(MESH["e0"].services[0], num_running=number) for number in (3, 4)]
    engines = [replace(MESH["e0"], services=[one]) for one in running]
    assert waiting({"a": 12, "b": 2}, engines) == {"a": 5, "b": 2}
    assert waiting({"a": 6}, engines) == {"a": 0}, "statuses are not of the same moment"
