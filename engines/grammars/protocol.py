"""Defines the messages of a grammar process: MessagePack, one message in each packet of a Unix socket.

Jobs are done one at a time, the cheapest first. A packet has a bounded size, so a long answer's tokens come in several
jobs with numbers that follow each other.
"""

from typing import cast

import msgspec

MAX_PACKET_BYTES = 131_072  # below what Linux lets a socket hold by default
TOKENS_PER_JOB = 8192
NOBODY = -1


class Check(msgspec.Struct, frozen=True, tag=True):
    """Is there a token that may come first?"""

    job: int
    grammar: str


class FollowTokens(msgspec.Struct, frozen=True, tag=True):
    """Which tokens may come after these?

    ``tokens`` follow the first ``start`` ones of an answer. ``grammar`` is the text in the first job of a request, and
    empty in later ones. ``is_last``: answer with a mask; more tokens come with the next job otherwise. ``expected_s``:
    the CPU time that a mask of this grammar is expected to take. ``drafts`` may follow, and are not part of the answer
    yet: after each of them a mask is wanted, too. Without drafts, at most ``num_forced`` tokens take their place that
    the grammar forces next.
    """

    job: int
    request: str
    grammar: str
    start: int
    tokens: list[int]
    is_last: bool
    expected_s: float = 0.0
    drafts: list[int] = []
    num_forced: int = 0


class Sound(msgspec.Struct, frozen=True, tag=True):
    """The grammar can be followed."""

    job: int


class Mask(msgspec.Struct, frozen=True, tag=True):
    """The tokens that a grammar allows next. ``bits``: one a token of the vocabulary, the lowest bit of a byte first.
    ``cpu_s``: what it took. ``further``: the bits after each draft, up to the first one that the grammar
    forbids. ``forced``: the tokens that were taken for drafts, as the grammar forces them.
    """

    job: int
    bits: bytes
    cpu_s: float = 0.0
    further: list[bytes] = []
    forced: list[int] = []


class Bad(msgspec.Struct, frozen=True, tag=True):
    """The grammar cannot be followed, or the answer does not keep to it. ``is_dear``: for want of time or memory."""

    job: int
    reason: str
    is_dear: bool = False


class ChildLost(msgspec.Struct, frozen=True, tag=True):
    """The grammar process is gone, again and again, and not because of this job."""

    job: int


class Unknown(msgspec.Struct, frozen=True, tag=True):
    """The request is not known, or not as far as ``start``: say it from the beginning."""

    job: int


class Died(msgspec.Struct, frozen=True, tag=True):
    """The child ended with all jobs that it had; the next one knows nobody. ``job``: of which it died, or `NOBODY`."""

    job: int
    reason: str


Job = Check | FollowTokens
Answer = Sound | Mask | Bad | Unknown | ChildLost
Packet = Sound | Mask | Bad | Unknown | Died

_encoder = msgspec.msgpack.Encoder()
_jobs = msgspec.msgpack.Decoder(Job)
_packets = msgspec.msgpack.Decoder(Packet)


def encode(message: Job | Answer | Died) -> bytes:
    return _encoder.encode(message)


def decode_job(packet: bytes) -> Job:
    return cast(Job, _jobs.decode(packet))


def decode_packet(packet: bytes) -> Packet:
    return cast(Packet, _packets.decode(packet))
