"""All servers of one gateway, by engine."""

import asyncio
from typing import TYPE_CHECKING, Final

from mesh.clock import Clock
from mesh.topology.schema import Topology
from router.servers.effects import HandOver
from router.servers.forwarded_call import CallBody, ForwardedCalls

if TYPE_CHECKING:
    from router.servers.adapter import Ear, ServerAdapter


class ServerAdapters:
    """What a gateway sends to servers goes through here. Empty in most meshes."""

    def __init__(self, topology: Topology, ear: "Ear", clock: Clock, max_pending: int) -> None:
        """Raise `UserError` if a key or a certificate is not there."""
        self.calls: Final = ForwardedCalls()
        servers = [engine for engine in topology.engines if engine.server is not None]
        self._adapters = {
            engine.id: _adapter()(engine, self.calls, ear, clock, topology.timing, max_pending, self._hand_over)
            for engine in servers
        }
        self.find: Final = self._adapters.get

    def __repr__(self) -> str:
        return f"<ServerAdapters {[*self._adapters.values()]}>"

    def __contains__(self, engine: str) -> bool:
        return engine in self._adapters

    async def tokenize(self, service: str, body: CallBody) -> list[int] | None:
        """Ask one of the servers of a service that can tell; None: there is none, or it does not answer in time."""
        for adapter in self._adapters.values():
            if adapter.may_tokenize(service):
                return await adapter.tokenize(service, body)
        return None

    def _hand_over(self, handed: HandOver) -> None:
        """Servers share calls with servers alone: `mesh check` sees to that."""
        self._adapters[handed.to].take_over(handed)

    async def run(self) -> None:
        """Run and never return; cancel it."""
        async with asyncio.TaskGroup() as tasks:
            for adapter in self._adapters.values():
                tasks.create_task(adapter.run())


def _adapter() -> "type[ServerAdapter]":
    """Imported where there are servers: their client takes a tenth of the time in which a gateway starts."""
    from router.servers.adapter import ServerAdapter

    return ServerAdapter
