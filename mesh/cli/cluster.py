"""Gathers what the processes of a running mesh say about themselves, by listening for a moment."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from mesh.addresses import owner_of, runtime_dir, supervisor_id, supervisors
from mesh.cluster.locate import locate
from mesh.cluster.reports import not_running
from mesh.report import named_in_topology
from mesh.sockets.sockets import Sockets
from mesh.supervisor.lock import holder
from mesh.supervisor.orphans import find_orphans
from mesh.topology.schema import Topology
from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage, SupervisorMessage
from mesh.wire.status import GatewayStatus, SupervisorStatus


def is_running_here(topology: Topology) -> bool:
    """Return whether this machine runs any part of the mesh."""
    runtime = runtime_dir(topology)
    hosts = [host.name for host in topology.hosts]
    return any(holder(runtime, host) for host in hosts) or bool(find_orphans(runtime, hosts))


def may_run(topology: Topology) -> bool:
    """False if the mesh cannot be running: it has one host, and does not run here."""
    return topology.cluster is not None or len(topology.hosts) > 1 or is_running_here(topology)


def require_running(topology: Topology, file: Path) -> None:
    """Raise `CommandError` if the mesh of that file cannot be running: it has one host, and does not run here."""
    if not may_run(topology):
        raise not_running(topology, file)


@asynccontextmanager
async def visitor(topology: Topology, *, remarks: bool = True) -> AsyncIterator[Sockets[SupervisorMessage]]:
    """Sockets of somebody who is not of the mesh: listens to all statuses, and sends.

    ``remarks``: whether to say how the mesh was found, where that is worth a word.
    """
    found = locate(topology)
    if found.remark and remarks:
        sys.stderr.write(f"note: {found.remark}\n")
    me = Sender(f"cli-{os.getpid()}", 1)
    sockets = Sockets[SupervisorMessage](me, found.directory, SupervisorMessage, key=found.key)
    sockets.subscribe(found.directory)
    try:
        yield sockets
    finally:
        await sockets.close()


async def collect(topology: Topology, sockets: Sockets[SupervisorMessage]) -> Mapping[str, BroadcastMessage]:
    """The newest status by name in the topology, as soon as all have spoken, or after one lease."""
    return named_in_topology(topology, await hear_all(topology, sockets))


async def hear_all(topology: Topology, sockets: Sockets[SupervisorMessage]) -> Mapping[str, BroadcastMessage]:
    """Do as `collect`, with the names that processes have in the mesh."""
    statuses: dict[str, BroadcastMessage] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(topology.timing.lease_s):
            async for sender, status in sockets.broadcasts():
                statuses[sender.process] = status
                if _expected(topology, sockets.known, statuses) <= statuses.keys():
                    break
    return statuses


async def statuses_of(topology: Topology, *, remarks: bool = True) -> Mapping[str, BroadcastMessage]:
    """Return the statuses of a mesh to somebody who asks nothing else; see `collect` and `visitor`."""
    async with visitor(topology, remarks=remarks) as sockets:
        return await collect(topology, sockets)


def _expected(topology: Topology, known: Iterable[str], statuses: Mapping[str, BroadcastMessage]) -> set[str]:
    """Everybody, less the processes that a supervisor knows not to be running."""
    mine = supervisors(topology)
    expected = {process for process in known if owner_of(process) == process}
    for host in topology.hosts:
        supervisor = supervisor_id(host.name)
        status = statuses.get(supervisor)
        if isinstance(status, SupervisorStatus):
            expected -= {process for process in mine if mine[process] == supervisor}
            expected |= {child.process for child in status.children if child.state == "running"} & mine.keys()
    return expected


def admin_urls(topology: Topology) -> dict[str, str | None]:
    """Return where each gateway says that operators reach it; None: it says nothing."""
    return admin_urls_in(topology, asyncio.run(statuses_of(topology)))


def admin_urls_in(topology: Topology, statuses: Mapping[str, BroadcastMessage]) -> dict[str, str | None]:
    """Return the same, from what `statuses_of` returned."""
    said = {name: status.admin_url for name, status in statuses.items() if isinstance(status, GatewayStatus)}
    names = dict.fromkeys([*(gateway.id for gateway in topology.gateways), *said])
    return {name: said.get(name) or None for name in names}
