"""What the processes of a mesh say of themselves, heard without any relay in between."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.chaos.deployment import MESH_NAME, Deployment
from mesh.addresses import supervisor_id
from mesh.directory import Endpoints, directory
from mesh.sockets.curve import CurveKey
from mesh.sockets.sockets import Sockets
from mesh.topology.parse import load
from mesh.topology.schema import LOCAL_HOST
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage, Message, SupervisorMessage
from mesh.wire.placement import PlacementStatus
from mesh.wire.status import EngineStatus, GatewayStatus

FRESH_S = 1.0  # a status that is older says nothing
SUPERVISOR = supervisor_id(LOCAL_HOST)  # where there is one host


class Observer:
    """The last status of each process, and a way to order engines about as commands do."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._supervised = deployment.supervised
        self._heard: dict[str, tuple[BroadcastMessage, float]] = {}
        self._dead: set[int] = set()
        self._sockets: Sockets[SupervisorMessage] | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Observer"]:
        endpoints, key = self._endpoints(), None
        if len(self._deployment.hosts) > 1:
            topology = load(self._deployment.path)
            endpoints = dict(directory(topology))
            key = CurveKey.load(topology.curve_key) if topology.curve_key else None
        me = Sender(f"{MESH_NAME}-{os.getpid()}", 1)
        self._sockets = Sockets[SupervisorMessage](me, endpoints, SupervisorMessage, key=key)
        self._sockets.subscribe(endpoints)
        listening = asyncio.create_task(self._listen(self._sockets))
        try:
            yield self
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await self._sockets.close()

    def _endpoints(self) -> dict[str, Endpoints]:
        """Where processes of one host really listen."""
        return {
            process: Endpoints(f"ipc://{folder}/{process}.inbox", f"ipc://{folder}/{process}.status")
            for process in (*self._supervised, SUPERVISOR)
            for folder in [self._deployment.folder(process)]
        }

    async def _listen(self, sockets: Sockets[SupervisorMessage]) -> None:
        async for sender, status in sockets.broadcasts():
            self._heard[sender.process] = status, time.monotonic()

    def order(self, process: str, message: Message) -> None:
        assert self._sockets is not None, "orders are given while listening"
        self._sockets.send(process, message)

    # --- what is known ------------------------------------------------------------------------------------------------

    def forget(self, pid: int) -> None:
        """This process is dead, whatever it said last."""
        self._dead.add(pid)

    def status(self, process: str) -> BroadcastMessage | None:
        """Of a living process that was heard a moment ago."""
        status, at = self._heard.get(process, (None, 0.0))
        is_fresh = status is not None and time.monotonic() - at < FRESH_S and status.pid not in self._dead
        return status if is_fresh else None

    def engine(self, engine: str) -> EngineStatus | None:
        status = self.status(engine)
        return status if isinstance(status, EngineStatus) else None

    def gateway(self, gateway: str) -> GatewayStatus | None:
        status = self.status(gateway)
        return status if isinstance(status, GatewayStatus) else None

    def daemon(self, daemon: str) -> PlacementStatus | None:
        status = self.status(daemon)
        return status if isinstance(status, PlacementStatus) else None

    def pid(self, process: str) -> int | None:
        status = self.status(process)
        return status.pid if status else None

    def pids(self) -> dict[str, int]:
        """Of all engines, gateways and daemons that are alive."""
        found = {process: self.pid(process) for process in self._supervised}
        return {process: pid for process, pid in found.items() if pid is not None}

    def is_ready(self, process: str) -> bool:
        status = self.status(process)
        return isinstance(status, EngineStatus | GatewayStatus | PlacementStatus) and status.state is ProcessState.READY

    def is_stuck(self, engine: str) -> bool:
        status = self.engine(engine)
        return status is not None and status.state is ProcessState.STUCK

    def not_at_rest(self) -> list[str]:
        """Why the mesh is not as it began: all ready, nothing in flight, every block free. Empty: it is."""
        return [
            *(f"{engine} {why}" for engine in self._deployment.engines if (why := self._unrest(engine))),
            *(f"{name} {why}" for name in self._deployment.gateways if (why := self._unrest_of_gateway(name))),
        ]

    def _unrest(self, engine: str) -> str | None:
        status = self.engine(engine)
        if status is None or status.state is not ProcessState.READY:
            return "is not ready"
        held = sum(service.num_blocks - service.num_free_blocks for service in status.services)
        counts = {
            "requests": status.num_running + status.num_waiting,
            "reservations": status.num_reserved,
            "migrations": status.num_migrating_out + status.num_migrating_in,
            "blocks": held,
        }
        found = [f"{count} {what}" for what, count in counts.items() if count]
        return f"holds {', '.join(found)}" if found else None

    def _unrest_of_gateway(self, gateway: str) -> str | None:
        status = self.gateway(gateway)
        if status is None or status.state is not ProcessState.READY:
            return "is not ready"
        return f"has {status.num_requests} requests" if status.num_requests else None
