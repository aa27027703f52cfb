"""Raw connections to the sockets of a process: whatever they send, it goes on hearing its members."""

import asyncio
import contextlib
import resource
import struct

import pytest
import zmq

from mesh.sockets import sockets as mesh_sockets
from mesh.wire.bounds import MAX_FRAMES
from mesh.wire.control import Stop
from mesh.wire.frames import WIRE_VERSION
from mesh.wire.messages import encode
from mesh.wire.requests import Cancel, Epoch
from tests.mesh.sockets.test_sockets import A, B, bound, first, make_key, tcp_endpoints

__all__ = ["make_key", "tcp_endpoints"]

CUT_OFF_S = 30.0
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00"
NULL = GREETING + b"NULL".ljust(20, b"\0") + bytes(32)
CURVE = GREETING + b"CURVE".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"
HUGE = struct.pack(">Q", 2**40)
GARBAGE = {
    "no greeting": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "zeros": bytes(4096),
    "a first command without end": NULL + b"\x06" + HUGE + bytes(2**16),
    "a first command of CURVE without end": CURVE + b"\x06" + HUGE + bytes(2**16),
    "a first message without end": NULL + b"\x02" + HUGE + bytes(2**16),
    "a message without end": NULL + READY + b"\x02" + HUGE + bytes(2**16),
    "a word that CURVE does not know": CURVE + b"\x04\x08\x05HELLOxx",
    "a negative size": NULL + READY + b"\x02" + b"\xff" * 8 + bytes(2**16),
}
# Without a key, which only local sockets are, one that does not greet is taken for a peer of ZeroMQ 2.
CASES = [(what, has_key) for what in GARBAGE for has_key in (False, True) if has_key or what != "no greeting"]


@contextlib.asynccontextmanager
async def connected(address):
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def until_cut_off(reader):
    async with asyncio.timeout(CUT_OFF_S):
        with contextlib.suppress(ConnectionError):
            while await reader.read(4096):
                pass


async def assert_hears(b, tcp_endpoints, key=None):
    async with bound(A, tcp_endpoints, key=key) as a:
        a.send("b", Cancel("honest", Epoch(1)))
        assert (await first(b.messages())).message == Cancel("honest", Epoch(1))


@pytest.mark.parametrize(("what", "has_key"), CASES)
async def test_garbage_is_cut_off_and_costs_no_memory(tcp_endpoints, make_key, what, has_key, monkeypatch):
    monkeypatch.setattr(mesh_sockets, "HANDSHAKE_S", 0.3)
    key = make_key("mesh.key") if has_key else None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with bound(B, tcp_endpoints, key=key) as b:
        for address in (tcp_endpoints["b"].inbox, tcp_endpoints["b"].broadcast):
            async with connected(address) as (reader, writer):
                with contextlib.suppress(ConnectionError):
                    writer.write(GARBAGE[what])
                    await writer.drain()
                await until_cut_off(reader)
        await assert_hears(b, tcp_endpoints, key)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 2**10, "kilobytes"


async def test_who_says_nothing_is_cut_off(tcp_endpoints, monkeypatch):
    monkeypatch.setattr(mesh_sockets, "HANDSHAKE_S", 0.2)
    async with bound(B, tcp_endpoints), contextlib.AsyncExitStack() as stack:
        connecting = [connected(tcp_endpoints["b"].inbox) for _ in range(20)]
        connections = [await stack.enter_async_context(connection) for connection in connecting]
        await asyncio.gather(*(until_cut_off(reader) for reader, _ in connections))


async def test_a_frame_beyond_the_bound_cuts_its_sender_off_alone(tcp_endpoints, monkeypatch):
    monkeypatch.setattr(mesh_sockets, "MAX_BODY_BYTES", 10_000)
    async with bound(B, tcp_endpoints) as b:
        with zmq.Context() as context, context.socket(zmq.PUSH) as intruder:
            intruder.linger = 0
            intruder.reconnect_ivl = -1
            intruder.connect(tcp_endpoints["b"].inbox)
            intruder.send_multipart([WIRE_VERSION, b"a@1", bytes(20_000)])
            await assert_hears(b, tcp_endpoints)
        assert b.counters["received_malformed"] == 0


async def test_a_message_of_many_frames_is_malformed(tcp_endpoints):
    async with bound(B, tcp_endpoints) as b:
        with zmq.Context() as context, context.socket(zmq.PUSH) as intruder:
            intruder.connect(tcp_endpoints["b"].inbox)
            intruder.send_multipart([WIRE_VERSION, b"a@1", encode(Stop()), *[b""] * MAX_FRAMES])
            intruder.send_multipart([WIRE_VERSION, b"a@1", encode(Stop(now=True))])
            assert (await first(b.messages())).message == Stop(now=True)
        assert b.counters["received_malformed"] == 1


async def test_a_flood_of_malformed_messages_is_a_few_lines_of_the_log(tcp_endpoints, capsys):
    async with bound(B, tcp_endpoints) as b:
        with zmq.Context() as context, context.socket(zmq.PUSH) as intruder:
            intruder.connect(tcp_endpoints["b"].inbox)
            for number in range(500):
                intruder.send_multipart([WIRE_VERSION, b"a@%d" % number, b"\xff"])
            intruder.send_multipart([WIRE_VERSION, b"a@1", encode(Stop(now=True))])
            assert (await first(b.messages())).message == Stop(now=True)
        assert b.counters["received_malformed"] == 500
    assert capsys.readouterr().out.count("dropped a malformed message") <= mesh_sockets.RareWarnings()._most


async def test_subscriptions_to_anything_but_statuses_wake_nobody(tcp_endpoints):
    async with bound(A, tcp_endpoints) as a:
        with zmq.Context() as context, context.socket(zmq.SUB) as intruder:
            intruder.connect(tcp_endpoints["a"].broadcast)
            for number in range(200):
                intruder.subscribe(b"topic %d" % number)
            woken = asyncio.ensure_future(anext(a.subscribers()))
            await asyncio.sleep(0.2)
            assert not woken.done()
            intruder.subscribe(b"status")
            async with asyncio.timeout(CUT_OFF_S):
                assert await woken


async def test_the_key_is_asked_for_even_if_nobody_can_answer(tcp_endpoints, make_key):
    """The thread that tells members from others has died: a stranger who knows the public key stays out."""
    key, other = make_key("mesh.key"), make_key("other.key")
    async with bound(B, tcp_endpoints, key=key) as b:
        b._curve.close()
        with zmq.Context() as context, context.socket(zmq.PUSH) as intruder:
            intruder.linger = 0
            intruder.curve_serverkey = key.public.encode()
            intruder.curve_publickey, intruder.curve_secretkey = other.public.encode(), other.secret.encode()
            intruder.connect(tcp_endpoints["b"].inbox)
            intruder.send_multipart([WIRE_VERSION, b"a@1", encode(Stop(now=True))])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await anext(b.messages())
        b._curve = None
