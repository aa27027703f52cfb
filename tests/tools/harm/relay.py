"""A relay of the harness's own between the processes of a mesh on one host, and what its rules do to messages.

Each engine gets a runtime folder of its own, so it looks for its peers' sockets there and finds the relay's. What is
sent to a process that is not there waits for its next incarnation, as it would in the sender.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, get_args

import msgspec
import zmq
import zmq.asyncio

from mesh.wire.messages import TransferMessage

TRANSFER = frozenset(kind.__name__ for kind in get_args(TransferMessage))
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
Act = Callable[[Passing], Frames | None]


class Rule:
    """Does something to messages that are meant, and counts them. ``happened`` once the first of them has come.

    ``is_once``: only to the first. Until ``released``, messages wait, and so does what follows them on their
    connection, as in TCP; after it, no message is meant any more.
    """

    def __init__(self, which: Which, act: Act, *, is_once: bool = False, released: asyncio.Event | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.happened = asyncio.Event()
        self._which = which
        self._act = act
        self._ended = self.happened if is_once else released
        self._released = released

    async def apply(self, message: Passing) -> Frames | None:
        """The frames that go on; None if the message is lost."""
        if (self._ended is not None and self._ended.is_set()) or not self._which(message):
            return message.frames
        self.counts[message.kind] += 1
        self.happened.set()
        if self._released is not None:
            await self._released.wait()
        return self._act(message)


def lose(which: Which) -> Rule:
    return Rule(which, lambda _: None)


def hold(which: Which, released: asyncio.Event) -> Rule:
    return Rule(which, lambda message: message.frames, released=released)


def watch(which: Which, look: Callable[[Passing], object]) -> Rule:
    """Look once, at the first message."""
    return Rule(which, lambda message: (look(message), message.frames)[1], is_once=True)


def corrupt(which: Which, random: Random) -> Rule:
    """One byte of one block of KV is another one. ``which`` must leave out messages without blocks."""

    def act(message: Passing) -> Frames:
        frames = list(message.frames)
        at = random.randrange(BODY + 1, len(frames))
        changed = bytearray(frames[at])
        changed[random.randrange(len(changed))] ^= random.randrange(1, 256)
        frames[at] = bytes(changed)
        return tuple(frames)

    return Rule(which, act)


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


# --- the relay --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Route:
    """Where ``client`` connects to reach ``server``, and where that one really listens."""

    client: str
    server: str
    way_in: Path
    way_out: Path
    is_status: bool


class Relay:
    """``rules`` see every message in turn. A route keeps its order: a message that waits holds up what follows."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.rules: list[Rule] = []
        self._routes = list(routes)
        self._context = zmq.asyncio.Context()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for route in self._routes:
            route.way_in.unlink(missing_ok=True)
            kinds = (zmq.XPUB, zmq.XSUB) if route.is_status else (zmq.PULL, zmq.PUSH)
            way_in, way_out = map(self._context.socket, kinds)
            if route.is_status:
                way_in.setsockopt(zmq.XPUB_VERBOSE, 1)
                self._run(self._subscribe(way_in, way_out), self._move(route, way_out, way_in))
            else:
                self._run(self._move(route, way_in, way_out))
            way_out.setsockopt(zmq.RECONNECT_IVL, 20)
            way_in.bind(f"ipc://{route.way_in}")
            way_out.connect(f"ipc://{route.way_out}")

    def _run(self, *works: Coroutine[Any, Any, None]) -> None:
        self._tasks += map(asyncio.create_task, works)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._context.destroy(linger=0)

    async def _move(self, route: Route, source: zmq.asyncio.Socket, target: zmq.asyncio.Socket) -> None:
        """Statuses go from the server to the client, and messages the other way."""
        ends = (route.server, route.client) if route.is_status else (route.client, route.server)
        while True:
            frames = tuple(await source.recv_multipart())
            kept = await self._judge(Passing(*ends, frames, route.is_status))
            if kept is not None:
                await target.send_multipart(kept)

    @staticmethod
    async def _subscribe(way_in: zmq.asyncio.Socket, way_out: zmq.asyncio.Socket) -> None:
        while True:
            await way_out.send(await way_in.recv())

    async def _judge(self, message: Passing) -> Frames | None:
        for rule in self.rules:
            kept = await rule.apply(message)
            if kept is None:
                return None
            message = Passing(message.source, message.target, kept, message.is_status)
        return message.frames


def routes(folders: Mapping[str, Path]) -> list[Route]:
    """From each process to those in other folders, to sockets of both kinds. ``folders`` are where they listen.

    Processes that share a folder share their ways out of it; the first of them gives its name to what it sends.
    """
    found: dict[Path, Route] = {}
    for client, folder in folders.items():
        for server, there in folders.items():
            for kind in ("inbox", "status"):
                way_in = folder / f"{server}.{kind}"
                if there != folder:
                    found.setdefault(way_in, Route(client, server, way_in, there / way_in.name, kind == "status"))
    return list(found.values())
