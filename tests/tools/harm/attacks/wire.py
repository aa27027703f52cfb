"""What only a process of the mesh should say, said by somebody else: malformed, enormous, or with absurd numbers."""

import asyncio
import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import zmq

from mesh.directory import directory
from mesh.sockets.curve import CurveKey
from mesh.topology.parse import load
from mesh.wire.frames import WIRE_VERSION
from tests.tools.harm.attacks.ground import Answer, Ground
from tests.tools.harm.attacks.rows import expanded
from tests.tools.harm.attacks.ways import DONE, Run
from tests.tools.harm.harm import ANY_END, Harm
from tests.tools.harm.meshes import TWO_HOSTS
from tests.tools.harm.observer import SUPERVISOR

MIB = 2**20
SENDER = b"gateway@1"
SETTLES_S = 1.0
SAMPLING = {"max_tokens": 4, "seed": 1}
SPEC: dict[str, Any] = {
    "id": "siege-0", "gateway": "gateway", "service": "tiny", "prompt": [1, 2], "sampling": SAMPLING,
    "slo_ttft_s": 1.0, "slo_tpot_s": 1.0,
}  # fmt: skip
BIASED = {**SAMPLING, "logit_bias": {2**40: float("nan"), -1: float("inf")}}
TABLES: dict[str, Any] = expanded(tomllib.loads(Path(__file__).with_name("absurd.toml").read_text()))
MALFORMED, SENDERS = ([one.encode("latin-1") for one in TABLES[name]] for name in ("malformed", "senders"))
CANCEL = msgspec.msgpack.encode({"type": "Cancel", "request": "x", "epoch": [0, 0]})

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
        inboxes = [one.inbox for one in directory(ground.mesh.deployment.topology).values()]
        return await _say(inboxes, messages(), (public, *pair))

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


_w = partial(Harm, "wire", right=ANY_END)
_far = partial(_w, mesh=TWO_HOSTS)

ATTACKS = (
    _w("wire-malformed", say(lambda: said(*MALFORMED)), in_short=True),
    _w("wire-senders", say(lambda: by_senders(CANCEL))),
    _w("wire-absurd-numbers", say(lambda: said(*absurd())), in_short=True),
    _w("wire-frames-odd", say(odd_frames)),
    _w("wire-large-frames", say(lambda: said(b"\xc6\x08\x00\x00\x00" + bytes(2**27))), mixes=False),
    _w("wire-flood", say(lambda: said(*[b"\xc1"] * 20_000)), load=4),
    _w("wire-subscriptions", subscriptions),
    _far("curve-wrong-key", say_by_curve(lambda: said(*[os.urandom(1000)] * 20), is_stranger=True)),
    _far("curve-malformed", say_by_curve(lambda: [*said(*MALFORMED, *absurd()), *by_senders(b"\x80")])),
    _far("curve-huge-frame", say_by_curve(lambda: said(bytes(300 * MIB))), mixes=False),
)
