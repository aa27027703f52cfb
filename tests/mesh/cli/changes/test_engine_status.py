"""Commands about one engine wait for its word as long as a mesh does before it calls an engine dead, and longer."""

import asyncio
from types import SimpleNamespace

import pytest

from engines.status import starting_status
from mesh.cli.changes.engine_status import hear
from mesh.errors import CommandError
from mesh.topology.parse import load
from mesh.wire.frames import Sender


class Broadcasts:
    """The sockets of a command, which hear one engine once, after a while."""

    def __init__(self, status, after_s):
        self._status, self._after_s = status, after_s

    async def broadcasts(self):
        await asyncio.sleep(self._after_s)
        yield Sender("e", 1), self._status
        await asyncio.Event().wait()


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(
        '[services.tiny]\nmodel = "m"\n[engines.e]\n[gateways.g]\nport = 8001\n[access]\nopen = true\n'
        "[mesh]\nheartbeat_ms = 10\nlease_ms = 100\nreply_ms = 100\n"
    )
    return load(path)


@pytest.mark.parametrize(("after_s", "is_enough"), [(0.0, True), (0.0, False), (0.1, True), (0.1, False)])
def test_an_engine_may_take_longer_for_its_first_word_than_the_command_waits(topology, after_s, is_enough):
    status = starting_status(topology.engines[0])
    sockets = Broadcasts(status, after_s)
    assert asyncio.run(hear(topology, sockets, "e", lambda _: is_enough, 0.02)) is status


def test_an_engine_that_says_nothing_is_told_of(topology):
    sockets = Broadcasts(SimpleNamespace(), 60.0)
    with pytest.raises(CommandError, match=r"e said nothing for 0\.2 s; `mesh status` shows"):
        asyncio.run(hear(topology, sockets, "e", lambda _: True, 0.02))
