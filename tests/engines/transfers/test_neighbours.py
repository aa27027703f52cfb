from dataclasses import replace
from pathlib import Path

import pytest

from engines.transfers.neighbours import Neighbourhood
from mesh.topology.schema import EngineSpec, GatewaySpec, Rescheduling, ServiceSpec, Slo, Topology
from mesh.wire.control import Role


def topology(*engines: EngineSpec, most: int = 8) -> Topology:
    services = tuple(ServiceSpec(name, "none", Slo(1.0, 0.1)) for name in ("a", "b"))
    return Topology("t", Path(), services, engines, (GatewaySpec("g"),), rescheduling=Rescheduling(neighbours=most))


def pool(name: str, count: int, role: Role = Role.MULTIPLEX, services: tuple[str, ...] = ("a",)) -> list[EngineSpec]:
    return [EngineSpec(f"{name}-{index}", role, services) for index in range(count)]


def groups(mesh: Topology) -> set[frozenset[str]]:
    """Of all engines, by their own accounts; each is in one."""
    found = {spec.id: Neighbourhood(mesh, spec.id).of(spec.services) | {spec.id} for spec in mesh.engines}
    for engine, group in found.items():
        assert all(found[other] == group for other in group), f"{engine} and its neighbours see different groups"
    return set(found.values())


@pytest.mark.parametrize("count", [1, 7, 8])
def test_all_engines_of_a_small_mesh_are_neighbours(count: int):
    assert [len(group) for group in groups(topology(*pool("e", count)))] == [count]


@pytest.mark.parametrize("count", [9, 16, 17, 100, 1000])
def test_groups_are_even_and_none_is_too_large(count: int):
    sizes = {len(group) for group in groups(topology(*pool("e", count)))}
    assert max(sizes) <= 8
    assert max(sizes) - min(sizes) <= 1


def test_each_group_has_its_part_of_every_role_and_of_the_engines_on_standby():
    standby = [replace(spec, is_standby=True) for spec in pool("s", 8)]
    mesh = topology(*pool("p", 16, Role.PREFILL), *pool("d", 8, Role.DECODE), *standby)
    kinds = [sorted(id_[0] for id_ in group) for group in groups(mesh)]
    assert kinds == [["d", "d", "p", "p", "p", "p", "s", "s"]] * 4


def test_an_engine_with_several_services_has_a_group_for_each():
    mesh = topology(*pool("a", 16), *pool("b", 16, services=("b",)), EngineSpec("z", Role.MULTIPLEX, ("a", "b")))
    found = Neighbourhood(mesh, "z").of(("a", "b"))
    assert {id_[0] for id_ in found} == {"a", "b"}
    assert len(found) <= 14


def test_an_engine_that_loaded_a_service_since_looks_at_all():
    mesh = topology(*pool("a", 16), *pool("b", 16, services=("b",)))
    neighbourhood = Neighbourhood(mesh, "a-0")
    assert len(neighbourhood.of(("a",))) == 7
    assert len(neighbourhood.of(("a", "b"))) == 31
    assert len(neighbourhood.of(("a",))) == 7
