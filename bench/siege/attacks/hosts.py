"""The same between hosts: TCP ports with CURVE, before and after the handshake."""

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

import msgspec
import zmq

from bench.siege.answers import ANY_END, Answer
from bench.siege.attack import TWO_HOSTS, Family, attack
from bench.siege.attacks.wire import ABSURD, DONE, MALFORMED, SENDER, SENDERS, SETTLES_S, Mouth
from bench.siege.ground import ATTACKER, Ground
from bench.siege.http import line
from mesh.directory import directory
from mesh.sockets.curve import CurveKey
from mesh.topology.parse import load
from mesh.wire.frames import WIRE_VERSION

GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\x00") + b"\x00" + bytes(31)
NULL_GREETING: Final = GREETING.replace(b"CURVE".ljust(20, b"\x00"), b"NULL".ljust(20, b"\x00"))
HUGE_COMMAND: Final = b"\x06" + b"\x7f" + b"\xff" * 7
HUGE_FRAME: Final = b"\x02" + b"\x00\x00\x00\x7f\xff\xff\xff\xff"
MIB: Final = 2**20


def _endpoints(ground: Ground) -> list[str]:
    """Inboxes and statuses of all processes."""
    return [
        address
        for one in directory(load(ground.mesh.deployment.path)).values()
        for address in (one.inbox, one.broadcast)
    ]


def _ports(ground: Ground) -> list[int]:
    return [int(address.rpartition(":")[2]) for address in _endpoints(ground)]


def _key(ground: Ground) -> CurveKey:
    path = load(ground.mesh.deployment.path).curve_key
    assert path is not None, "hosts talk by CURVE"
    return CurveKey.load(path)


async def _throw(ground: Ground, first: bytes, then: bytes = b"", lines_each: int = 4) -> Sequence[Answer]:
    """The same bytes at every port, on a few connections that stay open for a while."""
    async with AsyncExitStack() as stack:
        for port in _ports(ground) * lines_each:
            with suppress(OSError):
                opened = await stack.enter_async_context(line(port, ATTACKER))
                await opened.send(first)
                if then:
                    await opened.send(then)
        await asyncio.sleep(min(3.0, ground.hold_s))
    return DONE


@attack("tcp-garbage", Family.WIRE, wall=TWO_HOSTS, right=ANY_END)
async def tcp_garbage(ground: Ground) -> Sequence[Answer]:
    return await _throw(ground, ground.random.randbytes(2 * MIB))


@attack("tcp-greeting-only", Family.WIRE, wall=TWO_HOSTS, right=ANY_END)
async def greeting_only(ground: Ground) -> Sequence[Answer]:
    """Handshakes that do not go on."""
    return await _throw(ground, GREETING, lines_each=40)


@attack("tcp-null-mechanism", Family.WIRE, wall=TWO_HOSTS, right=ANY_END)
async def null_mechanism(ground: Ground) -> Sequence[Answer]:
    return await _throw(
        ground, NULL_GREETING, b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH" + HUGE_FRAME + bytes(MIB)
    )


@attack("tcp-huge-before-handshake", Family.WIRE, wall=TWO_HOSTS, right=ANY_END)
async def huge_before(ground: Ground) -> Sequence[Answer]:
    """A command of the handshake that says it has 2^63 bytes, and sends some of them."""
    return await _throw(ground, GREETING + HUGE_COMMAND, bytes(8 * MIB), lines_each=2)


@attack("tcp-connections", Family.WIRE, wall=TWO_HOSTS, right=ANY_END)
async def connections(ground: Ground) -> Sequence[Answer]:
    """Opened and closed as fast as they go."""
    for _ in range(200):
        for port in _ports(ground):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                await asyncio.sleep(0)
    return DONE


@attack("curve-wrong-key", Family.WIRE, wall=TWO_HOSTS, right=ANY_END)
async def wrong_key(ground: Ground) -> Sequence[Answer]:
    """Somebody knows the mesh's public key, and has a pair of their own."""
    public, secret = zmq.curve_keypair()
    return await _say(
        ground, [[WIRE_VERSION, SENDER, os.urandom(1000)]] * 20, (_key(ground).public.encode(), public, secret)
    )


@attack("curve-malformed", Family.WIRE, wall=TWO_HOSTS, right=ANY_END)
async def curve_malformed(ground: Ground) -> Sequence[Answer]:
    """A member that has lost its mind."""
    bodies = [*MALFORMED, *(msgspec.msgpack.encode(message) for message in ABSURD)]
    messages = [[WIRE_VERSION, SENDER, body] for body in bodies]
    return await _say(ground, [*messages, *([WIRE_VERSION, sender, b"\x80"] for sender in SENDERS)])


@attack("curve-huge-frame", Family.WIRE, wall=TWO_HOSTS, right=ANY_END, mixes=False)
async def huge_after(ground: Ground) -> Sequence[Answer]:
    """300 MiB from a member: nothing that is sent is as large."""
    return await _say(ground, [[WIRE_VERSION, SENDER, bytes(300 * MIB)]])


async def _say(
    ground: Ground, messages: Sequence[Sequence[bytes]], pair: "tuple[bytes, bytes, bytes] | None" = None
) -> Sequence[Answer]:
    key = _key(ground)
    own = (key.public.encode(), key.public.encode(), key.secret.encode())
    with Mouth(pair or own) as mouth:
        for address in _endpoints(ground)[::2]:
            await mouth.say(address, messages)
    await asyncio.sleep(SETTLES_S)
    return DONE
