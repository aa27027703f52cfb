"""Holds what commands about one engine share: the mesh that they work on, and the engine's statuses as they come."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.errors import CommandError, UserError
from mesh.suggestions import suggestion

if TYPE_CHECKING:
    from mesh.sockets.sockets import Sockets
    from mesh.topology.schema import Topology
    from mesh.wire.messages import SupervisorMessage
    from mesh.wire.status import EngineStatus


def open_mesh(file: Path, engine: str, service: str | None = None) -> "Topology":
    """The deployment, which has the engine, and the service if one is named, and may be running."""
    from mesh.added.stored import load_deployed
    from mesh.cli.cluster import require_running

    topology = load_deployed(file)
    names = [spec.id for spec in topology.engines]
    if engine not in names:
        raise UserError(f"{file}: no engine {engine!r}; {suggestion(engine, names)}")
    services = [spec.name for spec in topology.services]
    if service is not None and service not in services:
        raise UserError(f"{file}: no service {service!r}; {suggestion(service, services)}")
    require_running(topology, file)
    return topology


def split_words(words: Sequence[str], wanted: str, count: int, usage: str) -> tuple[Path, list[str]]:
    """The file, and ``count`` other words: ``wanted``, in words."""
    from mesh.cli.arguments import split_topology

    file, rest = split_topology(words)
    if len(rest) != count:
        raise UserError(f"{wanted} needed; usage: {usage}")
    return file, rest


async def listen(
    sockets: "Sockets[SupervisorMessage]",
    engine: str,
    is_enough: "Callable[[EngineStatus], bool]",
    timeout_s: float,
) -> "EngineStatus | None":
    """The engine's first status that ``is_enough``, else the last one that came in time; None: it was silent."""
    from mesh.wire.status import EngineStatus

    last: EngineStatus | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            async for sender, status in sockets.broadcasts():
                if sender.process == engine and isinstance(status, EngineStatus):
                    last = status
                    if is_enough(status):
                        break
    return last


async def hear(
    topology: "Topology",
    sockets: "Sockets[SupervisorMessage]",
    engine: str,
    is_enough: "Callable[[EngineStatus], bool]",
    timeout_s: float,
) -> "EngineStatus":
    """Do as `listen` does, for an engine that should not be silent: it has a lease and an answer's time to speak."""
    patience_s = topology.timing.lease_s + topology.timing.reply_s
    status = await listen(sockets, engine, is_enough, timeout_s)
    if status is None and timeout_s < patience_s:
        status = await listen(sockets, engine, lambda _: True, patience_s - timeout_s)
    if status is None:
        silent_s = max(timeout_s, patience_s)
        raise CommandError(f"{engine} said nothing for {silent_s:g} s; `mesh status` shows whether it runs")
    return status


async def hear_anything(topology: "Topology", sockets: "Sockets[SupervisorMessage]", engine: str) -> "EngineStatus":
    """Return the engine's next status."""
    return await hear(topology, sockets, engine, lambda _: True, 0.0)
