"""What a relay does to messages between two processes."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from random import Random
from typing import Any

import msgspec

TRANSFER = frozenset(
    {"Reserve", "Reserved", "Extend", "Extended", "Declined", "Blocks", "Taken", "Commit", "Committed", "Abort"}
)
STATUS = "status"
BODY = 2  # index of the body among the frames of an inbox message; payload frames come after it

Frames = tuple[bytes, ...]

_decoder = msgspec.msgpack.Decoder()


@dataclass(frozen=True)
class Passing:
    """A message on its way. ``frames`` are those of `mesh.wire`: version, sender, body, payload."""

    source: str
    target: str
    frames: Frames
    is_status: bool = False

    @cached_property
    def body(self) -> dict[str, Any]:
        """Decoded; empty if it is not a map."""
        try:
            body = _decoder.decode(self.frames[BODY])
        except (IndexError, msgspec.DecodeError):
            return {}
        return body if isinstance(body, dict) else {}

    @property
    def kind(self) -> str:
        """The name of the message's type."""
        return STATUS if self.is_status else str(self.body.get("type", "?"))

    @property
    def transfer(self) -> str:
        return str(self.body.get("transfer", ""))

    @property
    def payload(self) -> Frames:
        return () if self.is_status else self.frames[BODY + 1 :]


Which = Callable[[Passing], object]
Act = Callable[[Passing], Awaitable[Frames | None]]


class Rule:
    """Does something to messages that are meant, and counts them. ``happened`` once the first of them has come."""

    def __init__(self, which: Which, act: Act) -> None:
        self.counts: Counter[str] = Counter()
        self.happened = asyncio.Event()
        self._which = which
        self._act = act

    async def apply(self, message: Passing) -> Frames | None:
        """The frames that go on; None if the message is lost."""
        if not self._which(message):
            return message.frames
        self.counts[message.kind] += 1
        self.happened.set()
        return await self._act(message)


def lose(which: Which) -> Rule:
    async def act(message: Passing) -> None:
        return None

    return Rule(which, act)


def corrupt(which: Which, random: Random) -> Rule:
    """One byte of one block of KV is another one. ``which`` must leave out messages without blocks."""

    async def act(message: Passing) -> Frames:
        frames = list(message.frames)
        at = random.randrange(BODY + 1, len(frames))
        changed = bytearray(frames[at])
        changed[random.randrange(len(changed))] ^= random.randrange(1, 256)
        frames[at] = bytes(changed)
        return tuple(frames)

    return Rule(which, act)


def watch(which: Which, look: Callable[[Passing], None]) -> Rule:
    """Look once, at the first message."""

    async def act(message: Passing) -> Frames:
        look(message)
        return message.frames

    rule = Rule(lambda message: not rule.happened.is_set() and which(message), act)
    return rule


def hold(which: Which, released: asyncio.Event) -> Rule:
    """Messages wait until ``released``, and so does what follows them on their connection, as in TCP."""

    async def act(message: Passing) -> Frames:
        await released.wait()
        return message.frames

    return Rule(lambda message: not released.is_set() and which(message), act)


# --- which messages ---------------------------------------------------------------------------------------------------


def every(n: int, which: Which) -> Which:
    """Every ``n``-th of them."""
    number = count(1)
    return lambda message: which(message) and next(number) % n == 0


def some(probability: float, random: Random, which: Which) -> Which:
    """Each of them with that probability."""
    return lambda message: which(message) and random.random() < probability


def is_transfer(message: Passing) -> bool:
    return message.kind in TRANSFER


def is_migration(message: Passing) -> bool:
    """Transfers of migrations have one number more: request.attempt.hop.number."""
    return message.transfer.count(".") == 3


def between(one: Collection[str], other: Collection[str]) -> Which:
    """Those from one side to the other, both ways, statuses too."""

    def is_between(message: Passing) -> bool:
        source, target = message.source, message.target
        return (source in one and target in other) or (source in other and target in one)

    return is_between
