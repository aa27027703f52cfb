"""What only a process of the mesh should say, said by somebody else: malformed, enormous, or with absurd numbers."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import zmq

from bench.chaos.observer import SUPERVISOR
from bench.siege.answers import ANY_END, Answer, End
from bench.siege.attack import Family, attack
from bench.siege.ground import Ground
from mesh.wire.frames import WIRE_VERSION

SENDER: Final = b"gateway@1"
SETTLES_S: Final = 1.0
DONE: Final = (Answer(End.CUT),)  # nobody answers on the wire
EXTENSIONS: Final = (
    b"\xd6\xff\xff\xff\xff\xff",
    b"\xc7\x0c\xff" + b"\xff" * 12,
    b"\xd4\x05\x00",
    b"\xc7\xff\xff" + b"\x01" * 255,
)

# Bodies that no decoder should take, or fail on in any way but its own.
MALFORMED: Final[Sequence[bytes]] = (
    b"",
    b"\xc1",
    b"\x00" * 1000,
    bytes(range(256)) * 64,
    b"\x91" * 1_000_000,
    b"\x81\xa4type" * 200_000,
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff\xa4type",
    b"\xc6\xff\xff\xff\xffabc",
    b"\xdb\x7f\xff\xff\xffabc",
    b"\x81\xa4type\xa7\xff\xfe\xfd\xfc\xfb\xfa\xf9",
    b"\x81\xa4type\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x82\xa4type\xa6Submit\xa4type\xa6Cancel",
    *(b"\x82\xa4type\xa6Cancel\xa7request" + extension for extension in EXTENSIONS),
    *(b"\x81\xa4type" + extension for extension in EXTENSIONS),
    *(b"\x82" + extension + b"\x01\xa4type\xa4Stop" for extension in EXTENSIONS),
)
SENDERS: Final[Sequence[bytes]] = (
    b"", b"@", b"@1", b"x@", b"x@-1", b"gateway@" + b"9" * 5000, "gateway@٣".encode(), "gateway@²".encode(),
    b"\xff\xfe@1", b"a" * 2**20 + b"@1", b"../../x@1", b"gateway@" + str(2**63).encode(), b"a\nb\x1b[2J@1",
)  # fmt: skip

NAN, INF = float("nan"), float("inf")
SAMPLING: Final = {"max_tokens": 4, "seed": 1}
SPEC: Final = {
    "id": "siege-0", "gateway": "gateway", "service": "tiny", "prompt": [1, 2], "sampling": SAMPLING,
    "slo_ttft_s": 1.0, "slo_tpot_s": 1.0,
}  # fmt: skip


def _submit(**fields: Any) -> dict[str, Any]:
    return {"type": "Submit", "spec": {**SPEC, **fields}, "epoch": [0, 0]}


def _sampled(**fields: Any) -> dict[str, Any]:
    return _submit(sampling={**SAMPLING, **fields})


# Messages of the right shape with numbers that make no sense.
ABSURD: Final[Sequence[Mapping[str, Any]]] = (
    *(_submit(slo_ttft_s=value) for value in (NAN, INF, -INF, -1.0)),
    *(_submit(slo_tpot_s=value) for value in (NAN, 0.0, -1.0)),
    *(_submit(prompt=value) for value in ([], [-1], [2**31], [2**62], [1] * 500_000)),
    *(_submit(priority=value) for value in (2**62, -(2**62))),
    _submit(age_s=NAN),
    _submit(age_s=-1e300),
    _submit(generated=[2**62] * 10),
    _submit(expected=[2**62, -1, 0]),
    _submit(service="nobody"),
    _submit(id="x" * 2**20),
    *(_sampled(max_tokens=value) for value in (0, -1, 2**62)),
    *(_sampled(temperature=value) for value in (NAN, INF, -1.0, 1e-320)),
    *(_sampled(top_k=value) for value in (-5, 2**62)),
    _sampled(top_p=NAN, min_p=-1.0),
    _sampled(repetition_penalty=0.0),
    _sampled(logit_bias={2**40: NAN, -1: INF}),
    _sampled(stop_token_ids=[2**62, -1]),
    _sampled(logprobs=2**40, prompt_logprobs=2**40),
    _sampled(grammar="x" * 2**20),
    _sampled(grammar='{"json": {"$ref": "#"}}'),
    {"type": "SubmitBatch", "submits": []},
    {"type": "Cancel", "request": "nobody", "epoch": [2**62, -1]},
    {"type": "Probe", "requests": [["nobody", [0, 0], -5]] * 1000},
    {"type": "Migrate", "request": "nobody", "to": "nobody"},
    {"type": "StepTokens", "deltas": [["nobody", [0, 0], -(2**62), [2**62], "stop"]] * 100},
    {"type": "Failed", "request": "nobody", "epoch": [0, 0], "reason": "x" * 2**20},
    {"type": "Accepted", "request": "nobody", "epoch": [0, 0], "queued_s": NAN, "predicted_ttft_s": -INF},
    {"type": "Refused", "request": "nobody", "epoch": [0, 0], "code": "full", "retry_s": NAN},
    {"type": "Reserve", "transfer": "t.0.0", "spec": SPEC, "num_tokens": 2**62, "block_size": -1},
    {"type": "Blocks", "transfer": "nobody.0.0", "seq": -1, "first": 2**62, "count": 2**62},
    {"type": "Commit", "transfer": "nobody.0.0", "spec": SPEC, "epoch": [0, 0]},
    {"type": "Extend", "transfer": "nobody.0.0", "num_tokens": 2**62},
    {"type": "Taken", "transfer": "nobody.0.0", "seq": 2**62},
    {"type": "Abort", "transfer": "nobody.0.0", "reason": "\x00" * 100_000},
)


class Mouth:
    """A socket that pushes whatever it is told into inboxes."""

    def __init__(self, secure: "tuple[bytes, bytes, bytes] | None" = None) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._secure = secure

    def __enter__(self) -> "Mouth":
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=200)

    async def say(self, address: str, messages: Sequence[Sequence[bytes]]) -> None:
        """What the other end does not take within a second is lost."""
        socket = self._context.socket(zmq.PUSH)
        socket.setsockopt(zmq.SNDTIMEO, 1000)
        if self._secure:
            socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = self._secure
        socket.connect(address)
        await asyncio.to_thread(_push, socket, messages)


def _push(socket: "zmq.Socket[bytes]", messages: Sequence[Sequence[bytes]]) -> None:
    for frames in messages:
        try:
            socket.send_multipart(list(frames))
        except zmq.Again:
            return
    socket.close(linger=500)


def inboxes(ground: Ground) -> list[str]:
    names = (*ground.mesh.deployment.supervised, SUPERVISOR)
    return [f"ipc://{ground.folder}/{name}.inbox" for name in names]


async def _everywhere(ground: Ground, messages: Sequence[Sequence[bytes]]) -> Sequence[Answer]:
    with Mouth() as mouth:
        for address in inboxes(ground):
            await mouth.say(address, messages)
    await asyncio.sleep(SETTLES_S)
    return DONE


@attack("wire-malformed", Family.WIRE, right=ANY_END, fast=True)
async def malformed(ground: Ground) -> Sequence[Answer]:
    return await _everywhere(ground, [[WIRE_VERSION, SENDER, body] for body in MALFORMED])


@attack("wire-senders", Family.WIRE, right=ANY_END, fast=True)
async def senders(ground: Ground) -> Sequence[Answer]:
    body = msgspec.msgpack.encode({"type": "Cancel", "request": "x", "epoch": [0, 0]})
    return await _everywhere(ground, [[WIRE_VERSION, sender, body] for sender in SENDERS])


@attack("wire-absurd-numbers", Family.WIRE, right=ANY_END, fast=True)
async def absurd(ground: Ground) -> Sequence[Answer]:
    bodies = [msgspec.msgpack.encode(message) for message in ABSURD]
    return await _everywhere(ground, [[WIRE_VERSION, SENDER, body] for body in bodies])


@attack("wire-frames-odd", Family.WIRE, right=ANY_END)
async def frames_odd(ground: Ground) -> Sequence[Answer]:
    """No frames that matter, thousands of them, or of other versions."""
    body = msgspec.msgpack.encode(_submit())
    odd = (
        [b""],
        [WIRE_VERSION],
        [b"ms0", SENDER, body],
        [WIRE_VERSION] * 5000,
        [WIRE_VERSION, SENDER, body, *[b"x"] * 5000],
    )
    return await _everywhere(ground, [*odd])


@attack("wire-large-frames", Family.WIRE, right=ANY_END, mixes=False)
async def large_frames(ground: Ground) -> Sequence[Answer]:
    """Larger than anything that is ever sent."""
    large = b"\xc6\x08\x00\x00\x00" + bytes(2**27)
    return await _everywhere(ground, [[WIRE_VERSION, SENDER, large]])


@attack("wire-flood", Family.WIRE, right=ANY_END, load=4)
async def flood(ground: Ground) -> Sequence[Answer]:
    """Each is counted, and not each is worth a line in a log."""
    return await _everywhere(ground, [[WIRE_VERSION, SENDER, b"\xc1"]] * 20_000)


@attack("wire-subscriptions", Family.WIRE, right=ANY_END)
async def subscriptions(ground: Ground) -> Sequence[Answer]:
    """Thousands of long topics at every process, and listeners that do not listen."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        for address in inboxes(ground):
            socket = context.socket(zmq.SUB)
            socket.setsockopt(zmq.RCVHWM, 1)
            socket.connect(address.replace(".inbox", ".status"))
            for number in range(3000):
                socket.subscribe(str(number).encode() * 200)
            socket.subscribe(b"")
        await asyncio.sleep(SETTLES_S + 1)
    finally:
        context.destroy(linger=0)
    return DONE
