"""What the command and its client processes tell each other: MessagePack frames on pipes, a length before each."""

import asyncio
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from bench.load.client.http import Address
from bench.load.results.outcome import Outcome, Promise

LENGTH = struct.Struct("<I")
Api = Literal["completions", "chat"]


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A request, but for its time and its words. ``chat`` is the index of a given chat, which brings its own words.

    ``think_s``: its client takes so long before it, since the answer that it waited for. ``then``: later turns of its
    conversation, none of which is sent before its ``at_s``.
    """

    model: str
    num_input: int  # tokens; of a given chat 0
    num_output: int
    blocks: tuple[int, ...] = ()
    promise: Promise | None = None
    priority: int | None = None
    chat: int | None = None
    think_s: float = 0.0
    at_s: float = 0.0
    then: "tuple[Shape, ...]" = ()


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A word and its tokens: texts of such pieces have the tokens of the pieces, one after the other."""

    text: str
    ids: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        return max(1, len(self.ids))


class Chat(msgspec.Struct, frozen=True):
    """Either ``messages`` or ``prompt``."""

    messages: tuple[dict[str, Any], ...] | None = None
    prompt: str | None = None


class Recipe(msgspec.Struct, frozen=True):
    """How bodies are made. Equal seeds and numbers make equal prompts, whichever process makes them.

    ``fillers`` are pieces of one token each. ``running``: the pieces of a text in their order; empty: prompts are drawn
    from the fillers. ``overhead``: tokens that the server puts around a text. The first ``prefix_tokens`` are one of
    ``num_prefixes`` beginnings. ``fields`` are those that all bodies have.
    """

    api: Api
    sends_ids: bool
    seed: int
    fillers: tuple[Piece, ...] = ()
    running: tuple[Piece, ...] = ()
    overhead: int = 0
    prefix_tokens: int = 0
    num_prefixes: int = 1
    chats: tuple[Chat, ...] = ()
    fields: Mapping[str, Any] = {}


class Pace(msgspec.Struct, frozen=True):
    """When one process sends. Open loop: ``due_s``, one time a shape. Closed loop: ``due_s`` is None.

    ``num_slots``: as many requests at most are on their way at a time. ``duration_s`` ends a closed loop, which takes
    its shapes again from the start if it comes to their end; without it, the loop ends with its shapes.
    """

    due_s: tuple[float, ...] | None = None
    num_slots: int | None = None
    duration_s: float | None = None


class Assignment(msgspec.Struct, frozen=True):
    """All that one process needs. Its shapes are ``first``, ``first + step``, ... of the load. A request's number is
    that of its shape times ``most_turns`` (the most that a conversation of the load has), plus its turn.
    """

    address: Address
    headers: Mapping[str, str]
    recipe: Recipe
    shapes: tuple[Shape, ...]
    pace: Pace
    timeout_s: float
    first: int = 0
    step: int = 1
    most_turns: int = 1
    keeps_text: bool = False
    sends_promises: bool = False


class Go(msgspec.Struct, frozen=True):
    """Begin at this time of `time.monotonic`, which all processes of a machine share."""

    at: float


class Batch(msgspec.Struct, frozen=True):
    """What happened since the last one. ``loop_lags_s``: how late the event loop was, now and then."""

    num_sent: int
    ended: list[Outcome]
    loop_lags_s: list[float]
    cpu_s: float  # since the start of the run
    elapsed_s: float
    is_last: bool = False


def frame(message: msgspec.Struct) -> bytes:
    data = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(data)) + data


def dealt(count: int, num_hands: int) -> Iterator[int]:
    """How many of ``count`` each gets."""
    for hand in range(num_hands):
        yield len(range(hand, count, num_hands))


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(length)
