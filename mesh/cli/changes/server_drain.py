"""Drains a server that others run: gateways send it nothing new, and what runs there ends there."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from mesh.addresses import owner_of
from mesh.cli.arguments import print_line
from mesh.cli.cluster import visitor
from mesh.errors import CommandError
from mesh.sockets.sockets import Sockets
from mesh.topology.schema import Topology
from mesh.wire.control import DrainServer, ProcessState
from mesh.wire.messages import SupervisorMessage
from mesh.wire.status import GatewayStatus


async def drain_server(topology: Topology, server: str, *, undo: bool, timeout_s: float) -> None:
    """Return when all gateways have obeyed, and nothing runs there any more. Raise `CommandError` if that takes too
    long, or no gateway is heard.
    """
    async with visitor(topology) as sockets:
        watch = _Watch(topology, server, is_drained=not undo)
        await watch.listen(sockets, topology.timing.lease_s)
        if not watch.heard:
            raise CommandError(f"no gateway was heard; {server} is drained by gateways (`mesh status` shows them)")
        if not watch.is_agreed:
            sockets.send(next(iter(watch.heard)), DrainServer(server, undo))
        await watch.listen(sockets, timeout_s)
        if not watch.is_over:
            raise CommandError(f"{server} after {timeout_s:g} s: {watch.what_is_left()}; it goes on draining")


class _Watch:
    """What gateways say of one server."""

    def __init__(self, topology: Topology, server: str, *, is_drained: bool) -> None:
        self.heard: dict[str, GatewayStatus] = {}
        self._num_gateways = len(topology.gateways)
        self._server = server
        self._is_drained = is_drained
        self._has_told = False

    async def listen(self, sockets: Sockets[SupervisorMessage], limit_s: float) -> None:
        """Listen until it is over, or for so long. The first time: until all gateways were heard."""
        is_first = not self.heard
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                async for sender, status in sockets.broadcasts():
                    if isinstance(status, GatewayStatus) and status.state is not ProcessState.DRAINING:
                        self.heard[sender.process] = status
                    if self.is_over or (is_first and len(self._owners()) == self._num_gateways):
                        return
                    self._tell(is_first=is_first)

    def _owners(self) -> Mapping[str, GatewayStatus]:
        return {owner_of(process): status for process, status in self.heard.items()}

    @property
    def is_agreed(self) -> bool:
        """Return whether all gateways that were heard know of it."""
        drains = [status.drains.get(self._server) for status in self.heard.values()]
        return all((drain is not None and drain.is_drained) is self._is_drained for drain in drains)

    @property
    def is_over(self) -> bool:
        return bool(self.heard) and self.is_agreed and not (self._is_drained and self._num_tokens())

    def _num_tokens(self) -> int:
        seen = [status.servers.get(self._server) for status in self.heard.values()]
        return sum(one.num_tokens for one in seen if one is not None)

    def what_is_left(self) -> str:
        if not self.is_agreed:
            return "not all gateways know of it"
        return f"requests with {self._num_tokens()} tokens are there"

    def _tell(self, *, is_first: bool) -> None:
        """One line while it goes on."""
        if not is_first and self.is_agreed and not self._has_told:
            print_line(f"{self._server}: {self.what_is_left()}")
            self._has_told = True
