"""A relay of the harness's own between the processes of a mesh on one host, message by message.

Each engine gets a runtime folder of its own, so it looks for its peers' sockets there and finds the relay's. What is
sent to a process that is not there waits for its next incarnation, as it would in the sender.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from bench.harm.rules import Frames, Passing, Rule


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
