"""How free a service is: what it holds, who waits, whose priority wants room, and whether it is to leave."""

from math import inf

import pytest

from engines.scheduling.service import Service
from engines.transfers.room import Room
from mesh.wire.control import Drain
from mesh.wire.requests import Epoch, Submit
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine
from tests.engines.virtual_memory import BLOCK_SIZE, GATEWAY, SERVICE

NUM_BLOCKS = 32


@pytest.fixture
def mesh() -> VirtualMesh:
    return VirtualMesh()


@pytest.fixture
def engine(mesh: VirtualMesh) -> VirtualEngine:
    return mesh.add("only", num_blocks=NUM_BLOCKS)


def parts(engine: VirtualEngine) -> tuple[Room, Service]:
    return engine.core._room, engine.core._services[SERVICE]


def test_an_idle_engine_is_as_free_as_it_has_memory(engine: VirtualEngine):
    room, service = parts(engine)
    assert room.freeness(service, 0.0) == room.bare_freeness(service, 0.0) == NUM_BLOCKS * BLOCK_SIZE
    assert room.head(service, 0.0) is None


def test_what_waits_first_counts_with_all_of_its_prompt(engine: VirtualEngine, make_spec: MakeSpec):
    room, service = parts(engine)
    engine.core.receive(GATEWAY, Submit(make_spec("r", 20), Epoch(1)), (), 0.0)
    head = room.head(service, 0.0)
    assert head is not None
    assert head.id == "r"
    assert room.bare_freeness(service, 0.0) == NUM_BLOCKS * BLOCK_SIZE - 20


def decode(mesh: VirtualMesh, *specs: object) -> None:
    for spec in specs:
        mesh.submit("only", spec)  # type: ignore[arg-type]
    service = mesh.engines["only"].core._services[SERVICE]
    while len(service.decoding()) < len(specs):
        assert mesh.step()


def test_each_running_request_has_its_part_of_what_is_free(
    mesh: VirtualMesh, engine: VirtualEngine, make_spec: MakeSpec
):
    room, service = parts(engine)
    decode(mesh, *(make_spec(name, 8, max_tokens=400, first=first) for name, first in (("a", 1), ("b", 50))))
    free_tokens = (NUM_BLOCKS - service.pool.num_held) * BLOCK_SIZE
    assert room.freeness(service, mesh.now) == free_tokens / 2


def test_high_priority_wants_room_beside_it(mesh: VirtualMesh, engine: VirtualEngine, make_spec: MakeSpec):
    room, service = parts(engine)
    decode(mesh, make_spec("r", 8, max_tokens=400, priority=1))
    assert room.freeness(service, mesh.now) < room.bare_freeness(service, mesh.now)


@pytest.mark.parametrize("leaves", ["the service", "all"])
def test_where_all_must_leave_nothing_is_free(engine: VirtualEngine, leaves: str):
    room, service = parts(engine)
    if leaves == "all":
        engine.core.receive("cli", Drain(), (), 0.0)
    else:
        service.is_leaving = True
    assert room.bare_freeness(service, 0.0) == -inf
