"""A relay of the harness's own between the processes of a mesh on one host, message by message.

Each engine gets a runtime folder of its own, so it looks for its peers' sockets there and finds the relay's. A pair of
connections stands for one: when an end closes, so does the other, and what was between them is lost, as on a network.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.harm.rules import Passing, Rule
from bench.harm.zmtp import Control, Frames, Reader, encode

READ_BYTES = 2**18
SUBSCRIBE = (b"\x00", b"\x01")  # a subscriber's messages to a publisher begin so


@dataclass(frozen=True, slots=True)
class Route:
    """Where ``client`` connects to reach ``server``, and where that one really listens."""

    client: str
    server: str
    entrance: Path
    exit: Path
    is_status: bool


class Relay:
    """``rules`` see every message in turn. A connection keeps its order: a message that waits holds up what follows."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.rules: list[Rule] = []
        self._routes = list(routes)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        for route in self._routes:
            route.entrance.unlink(missing_ok=True)
            self._servers.append(await asyncio.start_unix_server(partial(self._accept, route), str(route.entrance)))

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(route, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one of both ends closes."""
        try:
            there, back = await asyncio.open_unix_connection(str(route.exit))
        except OSError:  # the process is not there: whoever asked tries again
            writer.close()
            return
        forth = asyncio.create_task(self._pump(route, reader, back, route.client, route.server))
        answers = asyncio.create_task(self._pump(route, there, writer, route.server, route.client))
        try:
            await asyncio.wait({forth, answers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (forth, answers):
                task.cancel()
            for end in (writer, back):
                end.close()
            await asyncio.gather(forth, answers, return_exceptions=True)

    async def _pump(
        self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str, target: str
    ) -> None:
        frames = Reader()
        with suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                for item in frames.feed(data):
                    if writer.is_closing():
                        return
                    if isinstance(item, Control):
                        writer.write(item.data)
                    elif (kept := await self._judge(Passing(source, target, item, route.is_status))) is not None:
                        writer.write(encode(kept))
                await writer.drain()

    async def _judge(self, message: Passing) -> Frames | None:
        if message.is_status and message.frames[0][:1] in SUBSCRIBE:
            return message.frames
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
                entrance = folder / f"{server}.{kind}"
                if there != folder:
                    found.setdefault(entrance, Route(client, server, entrance, there / entrance.name, kind == "status"))
    return list(found.values())
