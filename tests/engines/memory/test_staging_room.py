"""The host's memory for weights that are read ahead has a bound, and a refusal says by how much it is exceeded."""

import pytest

from engines.memory.staging_room import StagingRoom
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec
from mesh.wire.control import Role

GIB = 2**30
ENGINE = EngineSpec("e0", Role.DECODE, ("chat",), staging_memory_bytes=3 * GIB)


def test_what_was_given_back_can_be_taken():
    room = StagingRoom(ENGINE)
    room.take("chat", 2 * GIB)
    room.take("chat", 3 * GIB)
    room.give_back("chat")
    room.give_back("nobody")
    room.take("code", 3 * GIB)


def test_more_than_the_bound_is_refused():
    room = StagingRoom(ENGINE)
    room.take("chat", 2 * GIB)
    with pytest.raises(UserError, match=r"^engines.e0: to stage weights of code takes 2.00 GiB: 1.00 GiB more"):
        room.take("code", 2 * GIB)
    room.take("code", GIB)


def test_more_than_the_host_has_is_refused():
    with pytest.raises(UserError, match=r"code takes 2.00 GiB, and its host has 1.00 GiB free$"):
        StagingRoom(ENGINE, lambda: GIB).take("code", 2 * GIB)
