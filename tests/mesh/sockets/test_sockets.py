import asyncio
import contextlib
import socket as sockets_of_python
from contextlib import AsyncExitStack

import msgpack
import pytest
import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from mesh.directory import Directory, Endpoints
from mesh.sockets.curve import CurveKey, make_key_file
from mesh.sockets.sockets import LOCAL_SEND_BYTES, Sockets
from mesh.wire.control import RequestPlaces, Stop
from mesh.wire.frames import TOPIC_STATUS, TOPIC_TAP, WIRE_VERSION, Sender
from mesh.wire.hosts import HostPlace, HostsMoved
from mesh.wire.messages import encode
from mesh.wire.requests import Cancel, Epoch
from mesh.wire.status import SupervisorStatus
from tests.tools.ports import free_range

A, B = Sender("a", 1), Sender("b", 2)
DEADLINE_S = 60.0
STATUS = SupervisorStatus(1, "h", 1, [], False)
HANDSHAKE_ENDED = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
)


@pytest.fixture
def endpoints(tmp_path):
    return {name: Endpoints(f"ipc://{tmp_path}/{name}.inbox", f"ipc://{tmp_path}/{name}.status") for name in "ab"}


@contextlib.asynccontextmanager
async def bound(me, endpoints, union=Stop | Cancel, key=None):
    sockets = Sockets(me, endpoints, union, key=key)
    sockets.bind()
    try:
        yield sockets
    finally:
        await sockets.close()


async def first(items):
    async with asyncio.timeout(DEADLINE_S):
        return await anext(items)


async def test_a_message_arrives_with_its_sender_and_payload(endpoints):
    async with bound(A, endpoints) as a, bound(B, endpoints) as b:
        assert a.send("b", Cancel("r1", Epoch(1)), [b"raw", memoryview(b"frames")])
        received = await first(b.messages())
        assert (received.sender, received.message) == (A, Cancel("r1", Epoch(1)))
        assert [bytes(frame) for frame in received.payload] == [b"raw", b"frames"]


async def test_a_message_to_nobody_is_counted(endpoints):
    async with bound(A, endpoints) as a:
        assert not a.send("nobody", Stop())
        assert a.counters["send_unknown_peer"] == 1


@pytest.mark.parametrize(
    "frames",
    [
        [b"junk"],
        [b"ms0", b"a@1", encode(Stop())],
        [WIRE_VERSION, b"no incarnation", encode(Stop())],
        [WIRE_VERSION, b"a@1", b"\xff\xff"],
        [WIRE_VERSION, b"a@1", msgpack.packb({"type": "Unknown"})],
        [WIRE_VERSION, b"a@1", msgpack.packb({"type": "Cancel", "request": 7})],
        [WIRE_VERSION, b"a@1", b""],
    ],
)
async def test_malformed_input_is_counted_and_dropped(endpoints, frames):
    async with bound(B, endpoints) as b:
        with zmq.Context() as context, context.socket(zmq.PUSH) as intruder:
            intruder.connect(endpoints["b"].inbox)
            intruder.send_multipart(frames)
            intruder.send_multipart([WIRE_VERSION, b"a@1", encode(Stop(now=True))])
            received = await first(b.messages())
        assert received.message == Stop(now=True)
        assert b.counters["received_malformed"] == 1


async def test_forgotten_peers_are_not_handed_old_work(endpoints):
    async with bound(A, endpoints) as a:
        assert a.send("b", Cancel("old", Epoch(1)))
        a.forget("b")
        await asyncio.sleep(0.2)  # libzmq closes in a thread of its own, and a dead peer is not back at once either
        async with bound(B, endpoints) as b:
            assert a.send("b", Cancel("new", Epoch(1)))
            assert (await first(b.messages())).message == Cancel("new", Epoch(1))


async def test_little_is_queued_for_peers_on_this_host_and_as_much_as_the_kernel_likes_for_others():
    addresses = {"a": "127.0.0.1:7001", "near": "127.0.0.1:7003", "far": "127.0.0.2:7001"}
    endpoints = {name: Endpoints(f"tcp://{address}", "tcp://127.0.0.1:7999") for name, address in addresses.items()}
    sockets = Sockets(A, endpoints, Stop)
    for peer in ("near", "far"):
        assert sockets.send(peer, Stop())
    sizes = {peer: outbox.getsockopt(zmq.SNDBUF) for peer, outbox in sockets._outboxes.items()}
    for peer in sizes:
        sockets.forget(peer)
    await sockets.close()
    assert sizes == {"near": LOCAL_SEND_BYTES, "far": -1}


@pytest.mark.timeout(30)
async def test_a_message_that_nothing_can_be_connected_for_is_counted_and_holds_up_no_end(endpoints):
    endpoints["b"] = Endpoints("tcp://127.0.0.1", endpoints["b"].broadcast)  # no port
    async with bound(A, endpoints) as a:
        assert not a.send("b", Stop())
        assert not a.send("b", Stop())
        assert a.counters["send_unconnected"] == 2


@pytest.mark.timeout(30)
async def test_a_failure_amid_connecting_holds_up_no_end(endpoints, monkeypatch):
    def fail(socket, address):
        raise RuntimeError(f"{socket!r} cannot go to {address}")

    async with bound(B, endpoints) as b:
        a = Sockets(A, endpoints, Stop)
        with monkeypatch.context() as patch:
            patch.setattr(zmq.Socket, "connect", fail)
            with pytest.raises(RuntimeError) as kept:  # its traceback holds all that was there
                a.send("b", Stop())
        assert a.send("b", Stop(now=True))
        assert (await first(b.messages())).message == Stop(now=True)
        await a.close()
    assert "cannot go" in str(kept.value)


async def test_a_visitor_without_an_address_of_its_own_sends(endpoints):
    async with bound(B, endpoints) as b:
        visitor = Sockets(Sender("cli-1", 1), endpoints, Stop)
        try:
            assert visitor.send("b", Stop(now=True))
            assert (await first(b.messages())).message == Stop(now=True)
        finally:
            await visitor.close()


async def test_an_answer_reaches_the_visitor_that_asked_and_nobody_else(endpoints):
    async with bound(B, endpoints) as b, AsyncExitStack() as stack:
        visitors = [Sockets(Sender(f"cli-{number}", 1), endpoints, Stop) for number in (1, 10)]
        for visitor in visitors:
            stack.push_async_callback(visitor.close)
            visitor.expect_answers()
            visitor.subscribe(["b"])
            assert await first(b.subscribers())
        b.answer("cli-10", RequestPlaces("first", []))
        b.publish(STATUS)
        b.answer("cli-1", RequestPlaces("second", []))
        assert await first(visitors[0].answers()) == (B, RequestPlaces("second", []))
        assert await first(visitors[1].answers()) == (B, RequestPlaces("first", []))
        assert await first(visitors[1].broadcasts()) == (B, STATUS)
        b.answer("cli-1", RequestPlaces("third", []))  # which nobody waits for
        b.publish(STATUS)
        assert await first(visitors[0].broadcasts()) == (B, STATUS)
        assert not visitors[0].counters


async def test_statuses_reach_subscribers_from_the_first_on(endpoints):
    status = SupervisorStatus(seq=1, host="local", pid=7, children=[])
    async with bound(A, endpoints) as a, bound(B, endpoints) as b:
        b.subscribe(["a"])
        assert await first(a.subscribers())
        a.publish(status)
        assert await first(b.broadcasts()) == (A, status)


async def test_a_status_that_nobody_reads_tells_that_its_sender_incarnations(endpoints):
    status = SupervisorStatus(seq=1, host="local", pid=7, children=[])
    async with bound(A, endpoints) as a, bound(B, endpoints) as b:
        b.subscribe(["a"])
        assert await first(a.subscribers())
        read = set()
        beacons = b.beacons(lambda process: process in read)
        a.publish(status)
        assert await first(beacons) == (A, None)
        read.add("a")
        a.publish(status)
        assert await first(beacons) == (A, status)


async def test_a_tap_sees_what_is_sent(endpoints):
    async with bound(A, endpoints) as a, bound(B, endpoints):
        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as tap:
            tap.subscribe(TOPIC_TAP)
            tap.connect(endpoints["a"].broadcast)
            tap.subscribe(TOPIC_STATUS)
            assert await first(a.subscribers())
            a.send("b", Cancel("r1", Epoch(1)))
            async with asyncio.timeout(DEADLINE_S):
                frames = await tap.recv_multipart()
        assert frames[:3] == [TOPIC_TAP, WIRE_VERSION, b"a@1"]
        assert msgpack.unpackb(frames[3]) == {"type": "Cancel", "request": "r1", "epoch": [1, 0]}
        assert frames[4] == b"b"


@pytest.fixture
def tcp_endpoints():
    """Free ones, all different: none is given back before the last is sampled."""
    with contextlib.ExitStack() as probes:

        def address():
            probe = probes.enter_context(sockets_of_python.socket())
            probe.bind(("127.0.0.1", 0))
            return f"tcp://127.0.0.1:{probe.getsockname()[1]}"

        return {name: Endpoints(address(), address()) for name in "ab"}


class Moving(Directory):
    """Of a and b, each alone on a host that can move; both are supervised by a."""

    def __init__(self, endpoints):
        super().__init__({"a": ("a",), "b": ("b",)}, [place(name, endpoints[name], 1) for name in endpoints])

    def supervisor_of(self, process):
        return "a"


def place(name, endpoints, incarnation):
    return HostPlace(name, "127.0.0.1", port_of(endpoints), "127.0.0.1", incarnation)


def port_of(endpoints):
    return int(endpoints.inbox.rpartition(":")[2])


@pytest.fixture
def moving_endpoints():
    """Two neighbouring ports for each of a, b, and where b goes."""
    first = free_range(6)
    ports = {name: first + 2 * index for index, name in enumerate(["a", "b", "elsewhere"])}
    return {name: Endpoints(f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port + 1}") for name, port in ports.items()}


async def test_a_process_whose_host_moved_is_found_where_it_is_now(moving_endpoints):
    elsewhere = moving_endpoints.pop("elsewhere")
    async with bound(A, Moving(moving_endpoints)) as a:
        a.subscribe(["b"])
        a.send("b", Cancel("lost with the host that was", Epoch(1)))
        a.hosts_moved([place("b", elsewhere, 2)])
        async with bound(B, Moving(moving_endpoints | {"b": elsewhere})) as b:
            assert a.send("b", Cancel("r1", Epoch(1)))
            assert (await first(b.messages())).message == Cancel("r1", Epoch(1))
            publishing = asyncio.create_task(publish_again_and_again(b))
            sender, status = await first(a.broadcasts())
            publishing.cancel()
            assert (sender, status) == (B, STATUS)


async def test_a_process_is_listened_to_as_soon_as_its_host_is_somewhere(moving_endpoints):
    elsewhere = moving_endpoints.pop("elsewhere")
    async with bound(A, Moving({"a": moving_endpoints["a"]})) as a:
        a.subscribe(["b"])
        assert not a.send("b", Cancel("r1", Epoch(1)))
        async with bound(B, Moving(moving_endpoints | {"b": elsewhere})) as b:
            a.hosts_moved([place("b", elsewhere, 1)])
            publishing = asyncio.create_task(publish_again_and_again(b))
            assert (await first(a.broadcasts()))[0] == B
            publishing.cancel()


async def test_where_hosts_are_is_taken_from_the_own_supervisor_only(moving_endpoints):
    elsewhere = moving_endpoints.pop("elsewhere")
    moved = HostsMoved([place("b", elsewhere, 2)])
    async with bound(A, Moving(moving_endpoints)) as a, bound(B, Moving(moving_endpoints)) as b:
        b.send("a", moved)
        b.send("a", Cancel("r1", Epoch(1)))
        assert (await first(a.messages())).message == Cancel("r1", Epoch(1))
        assert a.counters["received_refused"] == 1
        a.send("a", moved)
        a.send("a", Cancel("r2", Epoch(1)))
        assert (await first(a.messages())).message == Cancel("r2", Epoch(1))
        assert a.counters["received_refused"] == 1
        a.send("b", Cancel("r3", Epoch(1)))
    async with bound(B, Moving(moving_endpoints | {"b": elsewhere})):
        assert port_of(elsewhere) == port_of(a._directory["b"])


async def publish_again_and_again(sockets):
    while True:
        sockets.publish(STATUS)
        await asyncio.sleep(0.02)


@pytest.fixture
def make_key(tmp_path):
    def make(name: str) -> CurveKey:
        make_key_file(tmp_path / name)
        return CurveKey.load(tmp_path / name)

    return make


async def test_members_of_a_mesh_talk_under_its_key(tcp_endpoints, make_key):
    key = make_key("mesh.key")
    status = SupervisorStatus(seq=1, host="local", pid=7, children=[])
    async with bound(A, tcp_endpoints, key=key) as a, bound(B, tcp_endpoints, key=key) as b:
        a.send("b", Cancel("r1", Epoch(1)))
        assert (await first(b.messages())).message == Cancel("r1", Epoch(1))
        b.subscribe(["a"])
        assert await first(a.subscribers())
        a.publish(status)
        assert await first(b.broadcasts()) == (A, status)


@pytest.mark.parametrize("stranger", ["no key", "another key", "the server's public key alone"])
async def test_strangers_are_kept_out(tcp_endpoints, make_key, stranger):
    key, other = make_key("mesh.key"), make_key("other.key")
    async with bound(B, tcp_endpoints, key=key) as b:
        with zmq.asyncio.Context() as context, context.socket(zmq.PUSH) as socket:
            socket.linger = 0
            socket.handshake_ivl = 500
            if stranger != "no key":
                socket.curve_serverkey = (key if "alone" in stranger else other).public.encode()
                socket.curve_publickey, socket.curve_secretkey = other.public.encode(), other.secret.encode()
            with socket.get_monitor_socket(HANDSHAKE_ENDED) as monitor:
                socket.connect(tcp_endpoints["b"].inbox)
                socket.send_multipart([WIRE_VERSION, b"a@1", encode(Cancel("stolen", Epoch(1)))], zmq.DONTWAIT)
                async with asyncio.timeout(DEADLINE_S):
                    event = parse_monitor_message(await monitor.recv_multipart())
                socket.disable_monitor()
        assert event["event"] != zmq.EVENT_HANDSHAKE_SUCCEEDED
        async with bound(A, tcp_endpoints, key=key) as a:
            a.send("b", Cancel("honest", Epoch(1)))
            assert (await first(b.messages())).message == Cancel("honest", Epoch(1))
