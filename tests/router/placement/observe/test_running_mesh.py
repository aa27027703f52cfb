from random import Random

from msgspec.structs import replace

from mesh.wire.control import EnginePlace, ProcessState, Role
from router.placement.change.changeover import Changeover, Patience
from router.placement.observe.running_mesh import (
    catalogue_of,
    cluster_of,
    places,
    present_plan,
    rounded,
    waiting,
)
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


def told(engine, token_bytes):
    """The engine, which says how many bytes a token takes."""
    return replace(engine, services=[replace(one, block_bytes=token_bytes * one.block_size) for one in engine.services])


def test_kv_has_the_bytes_that_engines_tell():
    """Or what engines copy of it would take a time of its own where plans are judged."""
    found = catalogue_of([told(MESH["e1"], 2**20)], {"a": 1000, "b": 700}, max_sharing=2)
    profile = found.profile("a", 1)
    assert (profile.kv_bytes_per_token, profile.kv_memory_bytes) == (2**20, 1600 * 2**20)
    assert found.footprints["a"][1].kv_bytes == 1000 * 2**20
    assert not found.fits(["a", "b"], 1)
    untold = catalogue_of(MESH.values(), {"a": 1000}, max_sharing=2).profile("a", 1)
    assert untold.kv_memory_bytes // untold.kv_bytes_per_token == 1600


def test_each_engine_has_the_memory_that_it_has():
    """The small one cannot take a service whose longest request only the others hold."""
    small = replace(MESH["e1"], services=[replace(one, num_blocks=one.num_blocks // 4) for one in MESH["e1"].services])
    mesh = {"e0": told(MESH["e0"], 2**20), "e1": told(small, 2**20), "e2": replace(MESH["e2"], services=[])}
    groups = {group.id: group for group in present_plan(mesh).groups}
    sizes = [groups[name].kv_bytes for name in mesh]
    assert sizes == [1600 * 2**20, 400 * 2**20, None]
    found = catalogue_of(mesh.values(), {"a": 500, "b": 300}, max_sharing=2)
    assert [found.fits(["a"], 1, size) for size in sizes] == [True, False, True]
    assert [found.fits(["a", "b"], 1, size) for size in sizes] == [True, False, True]


def test_engines_with_nearly_as_much_memory_are_alike():
    assert rounded(1600 * 2**20) == 1600 * 2**20 == rounded(1601 * 2**20)
    assert rounded(1700 * 2**20) != rounded(1600 * 2**20)
    assert rounded(5) == 5


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
