"""Virtual usage and freeness, by hand and on an engine."""

from math import inf

import pytest

from engines.engine_request import EngineRequest
from engines.transfers.freeness import (
    free_tokens,
    freeness,
    growth_tokens,
    headroom_tokens,
    in_all,
    with_one_less,
    with_one_more,
)
from mesh.wire.control import Role
from mesh.wire.requests import Epoch, RequestSpec, Sampling
from mesh.wire.status import DecodeCost
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import BLOCK_SIZE, GATEWAY, SERVICE

COST = DecodeCost(0.010, 0.001)


def spec(name: str = "r", num_prompt: int = 40, priority: int = 0) -> RequestSpec:
    sampling = Sampling(max_tokens=50, seed=1, temperature=0.0)
    return RequestSpec(name, GATEWAY, SERVICE, list(range(1, num_prompt + 1)), sampling, 60.0, 1.0, priority)


def request(num_tokens: int, priority: int = 0) -> EngineRequest:
    return EngineRequest.of(spec(num_prompt=num_tokens, priority=priority), Epoch(0), 0.0, frozenset(), 1000)


def test_freeness_is_room_for_each_running_request():
    assert freeness(1000, 4) == 250
    assert freeness(1000, 0) == 1000


def test_what_is_lacking_is_lacking_whoever_shares_it():
    assert freeness(-200, 4) == freeness(-200, 1) == -200
    assert with_one_less(-200, 4, 500) == 100
    assert with_one_more(50, 2, 300) == -200
    assert with_one_more(100, 4, 100) == 60
    assert with_one_more(100, 4, 100, num_coming=5) == 30, "who comes shares the room, and brings none"


@pytest.mark.parametrize("free_tokens", [-inf, -300.0, 0.0, 300.0])
@pytest.mark.parametrize("num_running", [0, 1, 5])
def test_freeness_tells_how_many_tokens_are_free(free_tokens, num_running):
    assert in_all(freeness(free_tokens, num_running), num_running) == free_tokens


def test_requests_are_expected_to_grow_by_what_they_have_grown():
    assert growth_tokens([]) == 0.0
    grown = [request(100), request(100)]
    grown[0].tokens += [1] * 30
    assert growth_tokens(grown) == 15.0


@pytest.mark.parametrize("num_running", range(1, 6))
def test_one_request_less_and_one_more_are_each_others_opposite(num_running):
    free = with_one_less(120.0, num_running, 300)
    assert free > 120.0
    assert with_one_more(free, num_running - 1, 300) == pytest.approx(120.0)


def test_no_head_room_without_high_priority():
    assert headroom_tokens(COST, 1000, [request(100), request(50)], 8, 1.25) == 0


def test_head_room_leaves_the_load_at_which_steps_are_near_ideal():
    """One request takes 11 ms; 13.75 ms are bearable, which is three requests of 100 tokens."""
    running = [request(100), request(100, priority=1)]
    assert headroom_tokens(COST, 1000, running, 8, 1.25) == 700
    assert headroom_tokens(COST, 1000, running, 2, 1.25) == 800
    assert headroom_tokens(COST, 250, running, 8, 1.25) == 0


def test_virtual_usage_is_taken_off_the_capacity():
    assert free_tokens(1000, 300, 200, is_emptied=False) == 500
    assert free_tokens(1000, 0, 0, is_emptied=True) == -inf


def status_of(mesh: VirtualMesh, name: str):
    return mesh.engines[name].core.status(mesh.now).services[0]


def test_an_engine_counts_its_blocks_and_the_head_of_its_queue():
    mesh = VirtualMesh()
    mesh.add("a", Role.MULTIPLEX, num_blocks=32, max_running=1)
    capacity = 32 * BLOCK_SIZE
    assert status_of(mesh, "a").freeness == capacity
    mesh.submit("a", spec("first", 40))
    while not mesh.streams["first"]:
        mesh.step()
    status = status_of(mesh, "a")
    held = (status.num_blocks - status.num_free_blocks) * BLOCK_SIZE
    assert (status.num_running, status.freeness) == (1, capacity - held)
    for name in ("second", "third"):
        mesh.submit("a", spec(name, 60))
    assert status_of(mesh, "a").freeness == capacity - held - 60


def test_an_engine_that_is_drained_has_no_room_at_all():
    mesh = VirtualMesh()
    mesh.add("a").core.drain(0.0)
    assert status_of(mesh, "a").freeness == -inf
