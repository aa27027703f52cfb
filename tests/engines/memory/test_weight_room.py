import pytest

from engines.memory.weight_room import WeightRoom
from mesh.errors import UserError
from mesh.sizes import GIB
from mesh.topology.schema import EngineSpec
from mesh.wire.control import Role


def room(limit_gib: float | None = None, free_gib: float | None = None) -> WeightRoom:
    limit = None if limit_gib is None else int(limit_gib * GIB)
    free = None if free_gib is None else int(free_gib * GIB)
    return WeightRoom(EngineSpec("e0", Role.DECODE, ("chat",), weight_memory_bytes=limit), lambda: free)


def test_weights_are_taken_up_to_the_limit_and_given_back():
    weights = room(3.0)
    weights.take("chat", 2 * GIB)
    weights.take("code", GIB)
    with pytest.raises(UserError) as fault:
        weights.take("mail", GIB // 2)
    assert str(fault.value) == (
        "engines.e0: weights of mail take 0.50 GiB, beside 3.00 GiB of chat, code: 0.50 GiB more than its "
        "weight_memory, 3.00 GiB"
    )
    assert dict(weights.held) == {"chat": 2 * GIB, "code": GIB}
    weights.give_back("chat")
    weights.take("mail", GIB // 2)
    weights.give_back("nobody")
    assert dict(weights.held) == {"code": GIB, "mail": GIB // 2}


def test_small_weights_are_told_in_a_unit_that_shows_them():
    with pytest.raises(UserError, match=r"take 4\.00 MiB, beside 0\.00 MiB of others: 1\.00 MiB more .* 3\.00 MiB"):
        room(3 / 1024).take("chat", 4 * 2**20)


def test_a_service_that_is_loaded_again_does_not_count_twice():
    weights = room(3.0)
    weights.take("chat", 2 * GIB)
    weights.take("chat", 3 * GIB)
    assert dict(weights.held) == {"chat": 3 * GIB}


def test_without_a_limit_the_device_must_have_it_free():
    with pytest.raises(UserError, match=r"weights of chat take 2\.00 GiB, and its device has 1\.50 GiB free"):
        room(free_gib=1.5).take("chat", 2 * GIB)
    room(free_gib=2.0).take("chat", 2 * GIB)
    room().take("chat", 2**60)
