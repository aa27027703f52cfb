"""Keeps which servers are drained, as all gateways agree: the newest word of any of them counts."""

from collections.abc import Collection, Mapping

from mesh.wire.control import Drain, ServerDrain
from router.effects import SendToEngine


class ServerDrains:
    """One gateway's knowledge. ``servers``: those that there are."""

    def __init__(self, servers: Collection[str]) -> None:
        self._servers = servers
        self.known: dict[str, ServerDrain] = {}

    def __contains__(self, engine: str) -> bool:
        return engine in self._servers

    def order(self, server: str, *, undo: bool) -> list[SendToEngine]:
        """Somebody asked this gateway for it."""
        before = self.known.get(server)
        version = 1 if before is None else before.version + 1
        return self.hear({server: ServerDrain(not undo, version)})

    def hear(self, drains: Mapping[str, ServerDrain]) -> list[SendToEngine]:
        """Another gateway knows this."""
        effects = []
        for server, drain in drains.items():
            known = self.known.get(server)
            if server in self._servers and (known is None or drain.version > known.version):
                self.known[server] = drain
                effects.append(SendToEngine(server, Drain(undo=not drain.is_drained)))
        return effects
