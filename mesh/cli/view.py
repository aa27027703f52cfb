"""Shows ``mesh up``: a line for each change."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol

from mesh.cli.arguments import print_line
from mesh.topology.schema import ServiceSpec, Task, Topology
from mesh.wire.status import ChildStatus


class View(Protocol):
    """Sees a mesh start, run and stop, or be left to somebody else."""

    def __enter__(self) -> "View": ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def changed(self, children: Sequence[ChildStatus]) -> None: ...
    def ready(self, problem: str | None) -> None: ...
    def stopping(self) -> None: ...
    def left(self) -> None: ...


def welcome(topology: Topology, host: str, file: Path, placed_at: str | None = None) -> str:
    """The URL of a running mesh, and something to try."""
    gateways = [gateway for gateway in topology.gateways if gateway.host == host]
    if not gateways:
        return "ready"
    address = gateways[0].address
    if address in ("0.0.0.0", "::", "*"):
        address = placed_at or "127.0.0.1"
    url = f"{gateways[0].scheme}://{f'[{address}]' if ':' in address else address}:{gateways[0].port}"
    chats = [service.name for service in topology.services if not service.pools]
    path, body = _first_request(topology.services[0], chats)
    key = " -H 'authorization: Bearer KEY'" if topology.access and topology.access.keys else ""
    request = f"curl {url}{path}{key} -H 'content-type: application/json' -d '{json.dumps(body)}'"
    talk = "mesh chat" if url == "http://127.0.0.1:8000" else f"mesh chat --url {url}"
    names = ", ".join(service.name for service in topology.services)
    choice = f"  models: {names}\n" if len(topology.services) > 1 else ""
    talk = f"  {talk}\n" if chats else ""
    return f"ready: {url}\n{choice}\n  {request}\n{talk}  mesh status {file}\n"


def _first_request(first: ServiceSpec, chats: Sequence[str]) -> tuple[str, dict[str, object]]:
    """A chat, where a service has any."""
    if chats:
        question = {"role": "user", "content": "What is a mesh?"}
        return "/v1/chat/completions", {"model": chats[0], "messages": [question]}
    if first.task is Task.EMBED:
        return "/v1/embeddings", {"model": first.name, "input": "A mesh is a net."}
    return "/v1/score", {"model": first.name, "text_1": "What is a mesh?", "text_2": "A mesh is a net."}


class LineView:
    """One line for each change, for logs and pipes."""

    def __init__(self, topology: Topology, host: str, file: Path, on_ready: Callable[[bool], None]) -> None:
        self._welcome = welcome(topology, host, file)
        self._on_ready = on_ready
        self._seen: dict[str, ChildStatus] = {}
        self._num_stops = 0
        self._farewell = "stopped"

    @staticmethod
    def _tell(line: str) -> None:
        """A terminal that went away must not take the mesh with it."""
        with suppress(OSError):
            print_line(line)

    def __enter__(self) -> "LineView":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._tell(self._farewell)

    def changed(self, children: Sequence[ChildStatus]) -> None:
        for child in children:
            if line := _line(child, self._seen.get(child.process)):
                self._tell(line)
        self.note(children)

    def note(self, children: Sequence[ChildStatus]) -> None:
        """Take these as told already."""
        self._seen = {child.process: child for child in children}

    def ready(self, problem: str | None) -> None:
        """Says that the mesh is ready. ``problem``: why not everything is as it should be; the mesh runs all
        the same.
        """
        self._tell(problem or self._welcome)
        self._on_ready(problem is None)

    def left(self) -> None:
        self._farewell = "left to another `mesh up`; the mesh goes on"

    def stopping(self) -> None:
        self._num_stops += 1
        self._tell("stopping at once" if self._num_stops > 1 else "draining; Ctrl-C again stops at once")


def _line(child: ChildStatus, before: ChildStatus | None) -> str | None:
    if before is not None and child.state == before.state and child.pid == before.pid:
        return None
    match child.state:
        case "restarting":
            return f"{child.process}: died ({child.last_exit}); starting again"
        case "starting" if child.pid is None:
            return None
        case "starting":
            return f"{child.process}: starting (process {child.pid})"
        case _:
            return f"{child.process}: {child.state}"
