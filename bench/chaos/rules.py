"""What a relay does to messages between two processes. Pure, except for `Hold` and `Watch`, which wait and call."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, Protocol

import msgspec

from bench.chaos.zmtp import Frames

TRANSFER = frozenset(
    {"Reserve", "Reserved", "Extend", "Extended", "Declined", "Blocks", "Taken", "Commit", "Committed", "Abort"}
)
STATUS = "status"
BODY = 2  # index of the body among the frames of an inbox message; payload frames come after it

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


class Rule(Protocol):
    """``counts`` tells what it has done."""

    counts: Counter[str]

    async def apply(self, message: Passing) -> Frames | None:
        """The frames that go on; None if the message is lost."""


class EveryNth:
    """Every ``n``-th message of these kinds is lost."""

    def __init__(self, n: int, kinds: Collection[str]) -> None:
        self.counts: Counter[str] = Counter()
        self._n = n
        self._kinds = kinds
        self._num_seen = 0

    async def apply(self, message: Passing) -> Frames | None:
        if message.kind not in self._kinds:
            return message.frames
        self._num_seen += 1
        if self._num_seen % self._n:
            return message.frames
        self.counts[message.kind] += 1
        return None


class RandomLoss:
    """Each message is lost with that probability: of these kinds, or any but statuses."""

    def __init__(self, probability: float, random: Random, kinds: Collection[str] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._probability = probability
        self._random = random
        self._kinds = kinds

    async def apply(self, message: Passing) -> Frames | None:
        chosen = not message.is_status if self._kinds is None else message.kind in self._kinds
        if not chosen or self._random.random() >= self._probability:
            return message.frames
        self.counts[message.kind] += 1
        return None


class Corruption:
    """In every ``n``-th message with KV blocks, one byte of one block is another one."""

    def __init__(self, n: int, random: Random) -> None:
        self.counts: Counter[str] = Counter()
        self._n = n
        self._random = random
        self._num_seen = 0

    async def apply(self, message: Passing) -> Frames | None:
        payload = message.frames[BODY + 1 :]
        if message.is_status or not payload:
            return message.frames
        self._num_seen += 1
        if self._num_seen % self._n:
            return message.frames
        self.counts[message.kind] += 1
        which = self._random.randrange(len(payload))
        changed = bytearray(payload[which])
        changed[self._random.randrange(len(changed))] ^= self._random.randrange(1, 256)
        return (*message.frames[: BODY + 1], *payload[:which], bytes(changed), *payload[which + 1 :])


class Partition:
    """Nothing passes between two sides until `heal`; then all that waited arrives, as in TCP."""

    def __init__(self, one: Collection[str], other: Collection[str]) -> None:
        self.counts: Counter[str] = Counter()
        self._sides = (frozenset(one), frozenset(other))
        self._healed = asyncio.Event()

    def heal(self) -> None:
        self._healed.set()

    async def apply(self, message: Passing) -> Frames | None:
        one, other = self._sides
        ends = (message.source, message.target)
        if not self._healed.is_set() and (
            (ends[0] in one and ends[1] in other) or (ends[0] in other and ends[1] in one)
        ):
            self.counts["held"] += 1
            await self._healed.wait()
        return message.frames


class Watch:
    """Calls ``act`` once, with the first message that ``matches``; ``loses`` decides whether it goes on."""

    def __init__(
        self, matches: Callable[[Passing], bool], act: Callable[[Passing], None], *, loses: bool = False
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.happened = asyncio.Event()
        self._matches = matches
        self._act = act
        self._loses = loses

    async def apply(self, message: Passing) -> Frames | None:
        if self.happened.is_set() or message.is_status or not self._matches(message):
            return message.frames
        self.counts[message.kind] += 1
        self.happened.set()
        self._act(message)
        return None if self._loses else message.frames


class Hold:
    """Messages that ``match`` wait until `release`, and so does what follows them on their connection."""

    def __init__(self, matches: Callable[[Passing], bool]) -> None:
        self.counts: Counter[str] = Counter()
        self.happened = asyncio.Event()
        self._matches = matches
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def apply(self, message: Passing) -> Frames | None:
        if not self._released.is_set() and not message.is_status and self._matches(message):
            self.counts[message.kind] += 1
            self.happened.set()
            await self._released.wait()
        return message.frames
