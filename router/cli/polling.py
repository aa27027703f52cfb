"""Gathers what the gateways of a mesh say of their policies by listening."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from mesh.addresses import owner_of
from mesh.sockets.sockets import Sockets
from mesh.topology.schema import Topology
from mesh.wire.control import PolicyChoice, ProcessState
from mesh.wire.messages import SupervisorMessage
from mesh.wire.status import GatewayStatus, SupervisorStatus


class Poll:
    """The newest status of each gateway, by its name in the topology; of those that leave to a successor, none.

    ``names``: that they have in the mesh now. ``choice``: what all of them are asked to run; None: nothing.
    """

    def __init__(self, topology: Topology) -> None:
        self.heard: dict[str, GatewayStatus] = {}
        self.names: dict[str, str] = {}
        self.choice: PolicyChoice | None = None
        self._gateways = [gateway.id for gateway in topology.gateways]
        self._children: dict[str, str] = {}  # what their supervisors say of them

    async def listen(self, sockets: Sockets[SupervisorMessage], is_done: Callable[[], bool], timeout_s: float) -> None:
        """Listen until ``is_done``, but no longer than ``timeout_s``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                async for sender, status in sockets.broadcasts():
                    if isinstance(status, GatewayStatus):
                        self._hear(sender.process, status)
                    elif isinstance(status, SupervisorStatus):
                        self._children |= {owner_of(child.process): child.state for child in status.children}
                    if is_done():
                        return

    def _hear(self, process: str, status: GatewayStatus) -> None:
        gateway = owner_of(process)
        is_leaving = status.state is ProcessState.DRAINING and self.names.get(gateway) != process
        if gateway in self._gateways and not is_leaving:
            self.heard[gateway], self.names[gateway] = status, process

    @property
    def is_complete(self) -> bool:
        return all(gateway in self.heard for gateway in self._gateways)

    @property
    def is_agreed(self) -> bool:
        """Return whether all gateways run the choice."""
        return self.is_complete and all(status.policy == self.choice for status in self.heard.values())

    @property
    def latest_version(self) -> int:
        return max((status.policy.version for status in self.heard.values() if status.policy), default=0)

    def why_silent(self, gateway: str) -> str:
        state = self._children.get(gateway, "unknown")
        return {"running": "it runs, but is silent", "unknown": "no supervisor knows of it"}.get(
            state, f"it is {state}"
        )
