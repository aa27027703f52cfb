"""What the processes of a mesh say of themselves, heard without any relay in between."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
from tests.tools.harm.meshes import MESH_NAME, Deployment

FRESH_S = 1.0  # a status that is older says nothing
SUPERVISOR = supervisor_id(LOCAL_HOST)  # where there is one host
WITH_STATES = (EngineStatus, GatewayStatus, PlacementStatus)


class Observer:
    """The last status of each process, and a way to order engines about as commands do."""

    def __init__(self, deployment: Deployment, sockets: Sockets[SupervisorMessage]) -> None:
        self._deployment = deployment
        self._sockets = sockets
        self._heard: dict[str, tuple[BroadcastMessage, float]] = {}
        self._dead: set[int] = set()

    async def listen(self) -> None:
        async for sender, status in self._sockets.broadcasts():
            self._heard[sender.process] = status, time.monotonic()

    def order(self, process: str, message: Message) -> None:
        self._sockets.send(process, message)

    def forget(self, pid: int) -> None:
        """This process is dead, whatever it said last."""
        self._dead.add(pid)

    def status(self, process: str) -> BroadcastMessage | None:
        """Of a living process that was heard a moment ago."""
        status, at = self._heard.get(process, (None, 0.0))
        is_fresh = status is not None and time.monotonic() - at < FRESH_S and status.pid not in self._dead
        return status if is_fresh else None

    def engine(self, engine: str) -> EngineStatus | None:
        return self.engines().get(engine)

    def engines(self) -> dict[str, EngineStatus]:
        """Of all that are alive."""
        statuses = {name: self.status(name) for name in self._deployment.engines}
        return {name: status for name, status in statuses.items() if isinstance(status, EngineStatus)}

    def pid(self, process: str) -> int | None:
        status = self.status(process)
        return status.pid if status else None

    def pids(self) -> dict[str, int]:
        """Of all engines, gateways and daemons that are alive."""
        return {name: pid for name in self._deployment.supervised if (pid := self.pid(name)) is not None}

    def is_ready(self, process: str) -> bool:
        status = self.status(process)
        return isinstance(status, WITH_STATES) and status.state is ProcessState.READY

    def not_at_rest(self) -> list[str]:
        """Why the mesh is not as it began: all ready, nothing in flight, every block free. Empty: it is."""
        names = (*self._deployment.engines, *self._deployment.gateways)
        return [f"{name} {why}" for name in names if (why := self._unrest(name))]

    def _unrest(self, process: str) -> str | None:
        if not self.is_ready(process):
            return "is not ready"
        match self.status(process):
            case GatewayStatus() as status:
                held = {"requests": status.num_requests}
            case EngineStatus() as status:
                held = {
                    "requests": status.num_running + status.num_waiting,
                    "reservations": status.num_reserved,
                    "migrations": status.num_migrating_out + status.num_migrating_in,
                    "blocks": sum(service.num_blocks - service.num_free_blocks for service in status.services),
                }
            case _:
                held = {}
        found = ", ".join(f"{count} {what}" for what, count in held.items() if count)
        return f"holds {found}" if found else None


@asynccontextmanager
async def observing(deployment: Deployment) -> AsyncIterator[Observer]:
    """An observer that listens until the end of the block."""
    topology = load(deployment.path)
    has_hosts = len(deployment.hosts) > 1
    endpoints = dict(directory(topology)) if has_hosts else _endpoints(deployment)
    key = CurveKey.load(topology.curve_key) if topology.curve_key else None
    me = Sender(f"{MESH_NAME}-{os.getpid()}", 1)
    sockets = Sockets[SupervisorMessage](me, endpoints, SupervisorMessage, key=key)
    sockets.subscribe(endpoints)
    observer = Observer(deployment, sockets)
    listening = asyncio.create_task(observer.listen())
    try:
        yield observer
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await sockets.close()


def _endpoints(deployment: Deployment) -> dict[str, Endpoints]:
    """Where processes of one host really listen."""
    return {
        process: Endpoints(f"ipc://{folder}/{process}.inbox", f"ipc://{folder}/{process}.status")
        for process in (*deployment.supervised, SUPERVISOR)
        for folder in [deployment.folder(process)]
    }
