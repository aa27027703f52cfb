"""What only a process of the mesh should say, said by somebody else: malformed, enormous, or with absurd numbers."""

import asyncio
import os
import socket
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import zmq

from bench.harm.harm import ANY_END, End, Harm
from bench.harm.http import line
from bench.harm.meshes import TWO_HOSTS
from bench.harm.observer import SUPERVISOR
from bench.harm.siege.attack import Run
from bench.harm.siege.attacks.plain import expanded
from bench.harm.siege.ground import ATTACKER, Answer, Ground
from mesh.directory import Endpoints, directory
from mesh.sockets.curve import CurveKey
from mesh.topology.parse import load
from mesh.wire.frames import WIRE_VERSION

MIB = 2**20
SENDER = b"gateway@1"
SETTLES_S = 1.0
DONE = (Answer(End.CUT),)  # nobody answers on the wire
SAMPLING = {"max_tokens": 4, "seed": 1}
SPEC: dict[str, Any] = {
    "id": "siege-0", "gateway": "gateway", "service": "tiny", "prompt": [1, 2], "sampling": SAMPLING,
    "slo_ttft_s": 1.0, "slo_tpot_s": 1.0,
}  # fmt: skip
BIASED = {**SAMPLING, "logit_bias": {2**40: float("nan"), -1: float("inf")}}
TABLES: dict[str, Any] = expanded(tomllib.loads(Path(__file__).with_name("absurd.toml").read_text()))
MALFORMED, SENDERS = ([one.encode("latin-1") for one in TABLES[name]] for name in ("malformed", "senders"))
CANCEL = msgspec.msgpack.encode({"type": "Cancel", "request": "x", "epoch": [0, 0]})
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\x00") + b"\x00" + bytes(31)
NULL_GREETING = GREETING.replace(b"CURVE", b"NULL\x00")
HUGE_COMMAND = b"\x06\x7f" + b"\xff" * 7  # says that it has 2^63 bytes
HUGE_FRAME = b"\x02" + b"\x00\x00\x00\x7f\xff\xff\xff\xff"
NULL_HANDSHAKE = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"

Messages = Sequence[Sequence[bytes]]


def submit(**fields: Any) -> dict[str, Any]:
    return {"type": "Submit", "spec": {**SPEC, **fields}, "epoch": [0, 0]}


def absurd() -> list[bytes]:
    specs = [{field: value} for field, values in TABLES["spec"].items() for value in values]
    sampling = [{**SAMPLING, field: value} for field, values in TABLES["sampling"].items() for value in values]
    submits = [submit(**one) for one in (*specs, *({"sampling": one} for one in (*sampling, BIASED)))]
    spec = {"Reserve": {"spec": SPEC}, "Commit": {"spec": SPEC}}
    others = [{"type": kind, **fields, **spec.get(kind, {})} for kind, fields in TABLES["messages"].items()]
    return [msgspec.msgpack.encode(message) for message in (*submits, *others)]


def said(*bodies: bytes) -> Messages:
    return [[WIRE_VERSION, SENDER, body] for body in bodies]


def by_senders(body: bytes) -> Messages:
    return [[WIRE_VERSION, sender, body] for sender in SENDERS]


def odd_frames() -> Messages:
    """No frames that matter, thousands of them, or of other versions."""
    body = msgspec.msgpack.encode(submit())
    whole = [WIRE_VERSION, SENDER, body]
    return [[b""], [WIRE_VERSION], [b"ms0", SENDER, body], [WIRE_VERSION] * 5000, [*whole, *[b"x"] * 5000]]


# --- saying it --------------------------------------------------------------------------------------------------------

Pair = tuple[bytes, bytes]


def say(messages: Callable[[], Messages]) -> Run:
    """To every inbox of one host."""
    return lambda ground: _say(_local(ground), messages())


def say_by_curve(messages: Callable[[], Messages], *, is_stranger: bool = False) -> Run:
    """To every inbox of two hosts, by a member. A stranger knows the mesh's public key, and has a pair of their own."""

    async def run(ground: Ground) -> Sequence[Answer]:
        path = load(ground.mesh.deployment.path).curve_key
        assert path is not None, "hosts talk by CURVE"
        key = CurveKey.load(path)
        public = key.public.encode()
        pair = zmq.curve_keypair() if is_stranger else (public, key.secret.encode())
        return await _say([one.inbox for one in _endpoints(ground)], messages(), (public, *pair))

    return run


async def _say(
    inboxes: Sequence[str], messages: Messages, keys: tuple[bytes, bytes, bytes] | None = None
) -> Sequence[Answer]:
    with _context(linger_ms=200) as context:
        for address in inboxes:
            socket = context.socket(zmq.PUSH)
            socket.setsockopt(zmq.SNDTIMEO, 1000)
            if keys is not None:
                socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = keys
            socket.connect(address)
            await asyncio.to_thread(_push, socket, messages)
    await asyncio.sleep(SETTLES_S)
    return DONE


@contextmanager
def _context(linger_ms: int) -> "Iterator[zmq.Context[zmq.Socket[bytes]]]":
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(linger=linger_ms)


def _push(socket: "zmq.Socket[bytes]", messages: Messages) -> None:
    """What the other end does not take within a second is lost."""
    with suppress(zmq.Again):
        for frames in messages:
            socket.send_multipart(list(frames))
        socket.close(linger=500)


def _local(ground: Ground) -> list[str]:
    return [f"ipc://{ground.folder}/{name}.inbox" for name in (*ground.mesh.deployment.supervised, SUPERVISOR)]


def _endpoints(ground: Ground) -> list[Endpoints]:
    return list(directory(ground.mesh.deployment.topology).values())


def _ports(ground: Ground) -> list[int]:
    addresses = [address for one in _endpoints(ground) for address in (one.inbox, one.broadcast)]
    return [int(address.rpartition(":")[2]) for address in addresses]


async def subscriptions(ground: Ground) -> Sequence[Answer]:
    """Thousands of long topics at every process, and listeners that do not listen."""
    with _context(linger_ms=0) as context:
        for address in _local(ground):
            socket = context.socket(zmq.SUB)
            socket.setsockopt(zmq.RCVHWM, 1)
            socket.connect(address.replace(".inbox", ".status"))
            for number in range(3000):
                socket.subscribe(str(number).encode() * 200)
            socket.subscribe(b"")
        await asyncio.sleep(SETTLES_S + 1)
    return DONE


def throw(first: bytes, then: bytes = b"", lines_each: int = 4) -> Run:
    """The same bytes at every port, on a few connections that stay open for a while."""

    async def run(ground: Ground) -> Sequence[Answer]:
        async with AsyncExitStack() as stack:
            for port in _ports(ground) * lines_each:
                with suppress(OSError):
                    opened = await stack.enter_async_context(line(port, ATTACKER))
                    await opened.send(first)
                    await opened.send(then)
            await asyncio.sleep(min(3.0, ground.hold_s))
        return DONE

    return run


async def garbage(ground: Ground) -> Sequence[Answer]:
    return await throw(ground.random.randbytes(2 * MIB))(ground)


async def connections(ground: Ground) -> Sequence[Answer]:
    """Opened and closed as fast as they go."""
    for _ in range(200):
        for port in _ports(ground):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                await asyncio.sleep(0)
    return DONE


_w = partial(Harm, "wire", right=ANY_END)
_far = partial(Harm, "wire", right=ANY_END, mesh=TWO_HOSTS)

ATTACKS = (
    _w("wire-malformed", say(lambda: said(*MALFORMED)), in_short=True),
    _w("wire-senders", say(lambda: by_senders(CANCEL))),
    _w("wire-absurd-numbers", say(lambda: said(*absurd())), in_short=True),
    _w("wire-frames-odd", say(odd_frames)),
    _w("wire-large-frames", say(lambda: said(b"\xc6\x08\x00\x00\x00" + bytes(2**27))), mixes=False),
    _w("wire-flood", say(lambda: said(*[b"\xc1"] * 20_000)), load=4),
    _w("wire-subscriptions", subscriptions),
    _far("tcp-garbage", garbage),
    _far("tcp-greeting-only", throw(GREETING, lines_each=40)),
    _far("tcp-null-mechanism", throw(NULL_GREETING, NULL_HANDSHAKE + HUGE_FRAME + bytes(MIB))),
    _far("tcp-huge-before-handshake", throw(GREETING + HUGE_COMMAND, bytes(8 * MIB), lines_each=2)),
    _far("tcp-connections", connections),
    _far("curve-wrong-key", say_by_curve(lambda: said(*[os.urandom(1000)] * 20), is_stranger=True)),
    _far("curve-malformed", say_by_curve(lambda: [*said(*MALFORMED, *absurd()), *by_senders(b"\x80")])),
    _far("curve-huge-frame", say_by_curve(lambda: said(bytes(300 * MIB))), mixes=False),
)
