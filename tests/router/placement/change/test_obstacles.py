from dataclasses import replace as changed
from pathlib import Path

from msgspec.structs import replace

from mesh.sizes import GIB
from mesh.topology.schema import EngineSpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from router.placement.change.obstacles import Obstacles
from router.placement.change.restoring import restored
from router.placement.observe.running_mesh import catalogue_of, present_plan, with_weights
from router.placement.search.plan import Plan
from tests.router.cluster import M0, make_status

LIMITS = {"e0": 4 * GIB, "e1": 3 * GIB}


def engine(name: str, *services: str):
    """Weights of ``a`` take 2 GiB, of ``b`` 1, of ``c`` 3."""
    status = make_status(M0, services=services)
    sizes = {"a": 2 * GIB, "b": GIB, "c": 3 * GIB}
    held = [replace(service, weight_bytes=sizes[service.name]) for service in status.services]
    return replace(status, services=held, num_devices=1, weight_memory=LIMITS.get(name))


MESH = {name: engine(name, *services) for name, services in {"e0": "a", "e1": "b", "e2": "c"}.items()}
PRESENT = present_plan(MESH)
OBSTACLES = Obstacles.of(MESH)


def wanted(**held: str) -> Plan:
    groups = [changed(group, services=tuple(held.get(group.id, group.services))) for group in PRESENT.groups]
    return PRESENT.with_groups(*groups)


def test_an_engine_holds_what_it_has_and_what_it_gets_for_a_while():
    assert OBSTACLES.against(PRESENT, PRESENT) is None
    assert OBSTACLES.against(PRESENT, wanted(e0="ab", e1="ab")) is None, "3 of 4, 3 of 3 GiB"
    assert OBSTACLES.against(PRESENT, wanted(e0="c")) == (
        "e0 would hold a, c while the plan changes: weights of 5.00 GiB, 1.00 GiB more than its weight_memory"
    )
    assert OBSTACLES.against(PRESENT, wanted(e2="abc")) is None, "it has no limit"


def staging(**sizes: int) -> Obstacles:
    return Obstacles.of({name: replace(one, staging_memory=sizes.get(name, 0)) for name, one in MESH.items()})


def test_what_fits_in_the_place_of_others_can_be_had_through_the_hosts_memory():
    obstacles = staging(e0=3 * GIB)
    assert obstacles.against(PRESENT, wanted(e0="c")) is None
    assert obstacles.swaps(PRESENT, wanted(e0="c")) == ["e0"]
    assert obstacles.swaps(PRESENT, wanted(e0="ab")) == [], "it fits beside"
    assert staging(e0=2 * GIB).against(PRESENT, wanted(e0="c")) == (
        "e0 would have to stage c: weights of 3.00 GiB, 1.00 GiB more than its staging_memory"
    )
    assert obstacles.against(PRESENT, wanted(e0="ac")) == (
        "e0 would hold a, c while the plan changes: weights of 5.00 GiB, 1.00 GiB more than its weight_memory"
    ), "no swap makes room for both"


def test_what_is_there_already_is_no_obstacle_however_much_it_is():
    mesh = {"e1": engine("e1", "a", "c")}
    present = present_plan(mesh)
    assert Obstacles.of(mesh).against(present, present) is None


def test_what_is_about_to_leave_still_takes_its_room():
    full = engine("e0", "a", "b")
    mesh = {**MESH, "e0": replace(full, services=[replace(one, is_leaving=one.name == "a") for one in full.services])}
    present = present_plan(mesh)
    assert present.groups[0].services == ("b",)
    assert Obstacles.of(mesh).against(present, wanted(e0="bc")) == (
        "e0 would hold a, b, c while the plan changes: weights of 6.00 GiB, 2.00 GiB more than its weight_memory"
    )
    assert Obstacles.of(mesh).against(present, wanted(e0="ab")) is None, "it stays"


def test_a_load_that_failed_is_not_tried_again():
    obstacles = Obstacles.of(MESH, failed=[("e0", "b")])
    assert obstacles.against(PRESENT, wanted(e0="ab")) == (
        "e0 could not load b when it was told to; `mesh load` tries again at once"
    )
    assert obstacles.against(PRESENT, wanted(e1="ab")) is None


def test_an_engine_that_keeps_its_role_has_no_place_in_another():
    obstacles = Obstacles.of({**MESH, "e0": replace(MESH["e0"], keeps_role=True)})
    turned = PRESENT.with_groups(changed(PRESENT.groups[0], role=Role.DECODE))
    reason = "e0 runs static batches, which are prefilled and decoded in one place, and keeps its role"
    assert obstacles.against(PRESENT, turned) == reason
    assert obstacles.against(PRESENT, PRESENT) is None


def test_the_search_knows_what_fits_nowhere():
    lengths = {"a": 100, "b": 100, "c": 100}
    catalogue = catalogue_of(MESH.values(), lengths, 3)
    two = {name: MESH[name] for name in LIMITS}
    limited = with_weights(catalogue, Obstacles.of(two, MESH.values()), present_plan(two))
    assert limited.weight_limits == {1: 4 * GIB}
    assert limited.fits(["b", "c"], 1)
    assert not limited.fits(["a", "c"], 1)
    assert with_weights(catalogue, OBSTACLES, PRESENT).fits(["a", "c"], 1), "e2 has no limit"


def test_a_service_without_an_engine_goes_where_there_is_room():
    engines = tuple(EngineSpec(name, MESH[name].role, tuple(one.name for one in MESH[name].services)) for name in MESH)
    topology = Topology(
        "t", Path("t.toml"), tuple(ServiceSpec(name, "m", Slo(1.0, 0.1)) for name in "abc"), engines, ()
    )
    alive = {name: MESH[name] for name in ("e0", "e1")}
    plan = present_plan(alive)
    obstacles = Obstacles.of(alive, MESH.values())
    assert restored(plan, {"c": []}, topology, obstacles) is None, "5 and 4 GiB would be too much"
    roomy = {**alive, "e1": replace(alive["e1"], weight_memory=4 * GIB)}
    found = restored(plan, {"c": []}, topology, Obstacles.of(roomy, MESH.values()))
    assert found is not None
    assert {group.id: group.services for group in found.groups} == {"e0": ("a",), "e1": ("b", "c")}


def test_a_service_without_an_engine_takes_the_place_of_one_that_others_hold():
    """As after a swap that was interrupted by the death of the engine that was to get it."""
    status = replace(MESH["e0"], weight_memory=4 * GIB, staging_memory=4 * GIB)
    twice = {"e0": status, "e1": status}
    topology = Topology("t", Path("t.toml"), (), (), ())
    found = restored(present_plan(twice), {"c": ["e1"]}, topology, Obstacles.of(twice, MESH.values()))
    assert found is not None
    assert sorted(group.services for group in found.groups) == [("a",), ("c",)]
    alone = {"e0": status}
    assert restored(present_plan(alone), {"c": []}, topology, Obstacles.of(alone, MESH.values())) is None


def test_an_engine_that_could_not_load_it_is_asked_again_if_there_is_no_other():
    topology = Topology("t", Path("t.toml"), (), (), ())
    plan = present_plan({"e2": MESH["e2"]})
    obstacles = Obstacles.of({"e2": MESH["e2"]}, MESH.values(), [("e2", "a")])
    found = restored(plan, {"a": []}, topology, obstacles)
    assert found is not None
    assert found.groups[0].services == ("a", "c")
