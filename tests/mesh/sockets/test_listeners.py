import asyncio
import os
import socket
from contextlib import asynccontextmanager
from unittest.mock import patch

from mesh.sockets.listeners import Inheritance, handover_file, offer

DEADLINE_S = 20.0


@asynccontextmanager
async def predecessor(path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        offering = asyncio.create_task(offer(path, {"http": listener}))
        await asyncio.sleep(0)
        try:
            yield listener, offering
        finally:
            offering.cancel()
            await asyncio.gather(offering, return_exceptions=True)


async def take(path):
    return await asyncio.to_thread(Inheritance.take, path)


async def test_a_successor_gets_the_listener_with_who_waits_at_it(tmp_path):
    path = handover_file(tmp_path, "g")
    async with asyncio.timeout(DEADLINE_S), predecessor(path) as (listener, offering):
        with socket.create_connection(listener.getsockname()) as waiting:
            inherited = await take(path)
            assert not offering.done()
            inherited.serving()
            await offering
            listener.close()
            accepted, address = inherited.listeners["http"].accept()
            assert address == waiting.getsockname()
            accepted.close()
        inherited.listeners["http"].close()
    assert not path.exists()


async def test_a_successor_that_dies_before_it_serves_changes_nothing(tmp_path):
    path = handover_file(tmp_path, "g")
    async with asyncio.timeout(DEADLINE_S), predecessor(path) as (_, offering):
        for _ in range(3):
            inherited = await take(path)
            inherited.listeners["http"].close()
            inherited.close()
        assert not offering.done()
        second = await take(path)
        second.serving()
        await offering
        second.listeners["http"].close()


async def test_whoever_is_of_another_user_gets_nothing(tmp_path):
    path = handover_file(tmp_path, "g")
    async with asyncio.timeout(DEADLINE_S), predecessor(path) as (_, offering):
        with patch("mesh.sockets.listeners._user_of", return_value=os.getuid() + 1):
            assert await take(path) is None
        assert not offering.done()


async def test_rubbish_is_no_successor(tmp_path):
    path = handover_file(tmp_path, "g")
    async with asyncio.timeout(DEADLINE_S), predecessor(path) as (_, offering):
        for text in (b"", b"x", b"serving?", b"\0" * 1000):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(str(path))
                stranger.sendall(text)
                await asyncio.sleep(0.01)
            assert not offering.done(), text


async def test_without_a_predecessor_there_is_nothing_to_take(tmp_path):
    path = handover_file(tmp_path, "g")
    assert Inheritance.take(path) is None
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert Inheritance.take(path) is None


async def test_a_socket_that_a_dead_process_left_is_replaced(tmp_path):
    path = handover_file(tmp_path, "g")
    path.touch()
    async with asyncio.timeout(DEADLINE_S), predecessor(path):
        inherited = await take(path)
        assert list(inherited.listeners) == ["http"]
        inherited.listeners["http"].close()
        inherited.close()
