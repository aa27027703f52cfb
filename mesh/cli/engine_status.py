"""What commands about one engine share: its name, and its statuses as they come."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from mesh.errors import UserError

if TYPE_CHECKING:
    from mesh.messages import EngineStatus, SupervisorMessage
    from mesh.sockets import Sockets
    from mesh.topology.schema import Topology


def check_engine(topology: "Topology", engine: str) -> None:
    """Raise `UserError` if the deployment has no such engine."""
    names = [spec.id for spec in topology.engines]
    if engine not in names:
        raise UserError(f"{topology.path}: no engine {engine!r}; there are {', '.join(names)}")


async def listen(
    sockets: "Sockets[SupervisorMessage]",
    engine: str,
    is_enough: "Callable[[EngineStatus], bool]",
    timeout_s: float,
) -> "EngineStatus | None":
    """The engine's first status that ``is_enough``, else the last one that came in time; None: it was silent."""
    from mesh.messages import EngineStatus

    last: EngineStatus | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            async for sender, status in sockets.broadcasts():
                if sender.process == engine and isinstance(status, EngineStatus):
                    last = status
                    if is_enough(status):
                        break
    return last


def silent(engine: str, timeout_s: float) -> str:
    return f"{engine} said nothing for {timeout_s:g} s; `mesh status` shows whether it runs"
