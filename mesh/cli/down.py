"""``mesh down``: stop a mesh, after its running requests have ended unless told ``--now``."""

import argparse
import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from mesh.cli.arguments import add_topology, print_line
from mesh.errors import EXIT_FAILURE

if TYPE_CHECKING:
    import psutil

    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology

GRACE_S = 10.0  # for killing what did not drain, and for leaving


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("down", help="stop a mesh; running requests end first")
    add_topology(parser, running=True)
    parser.add_argument("--now", action="store_true", help="do not wait for running requests")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli.cluster import may_run
    from mesh.topology.parse import load
    from mesh.topology.schema import ClusterEngine

    topology = load(options.file)
    if topology.cluster is not None and topology.cluster.on is ClusterEngine.RAY:
        from mesh.cluster.ray.up import down

        return down(topology, print_line, now=options.now)
    if not may_run(topology):
        sys.stderr.write(f"mesh {topology.name!r} is not running\n")
        return EXIT_FAILURE
    supervisors = _supervisors_here(topology)
    if supervisors or len(topology.hosts) > 1:
        asyncio.run(_ask(topology, now=options.now))
    drain_s = (
        0.0 if options.now else 2 * topology.timing.drain_s
    )  # gateways first, then engines; the placement daemon stops at once
    late = _wait(supervisors, drain_s + GRACE_S)
    if late:
        sys.stderr.write(f"mesh {topology.name!r} is still draining; `mesh down --now` ends it at once\n")
        return EXIT_FAILURE
    _stop_orphans(topology, now=options.now)
    sys.stdout.write(f"mesh {topology.name!r} is stopped\n")
    return 0


def _supervisors_here(topology: "Topology") -> list["psutil.Process"]:
    import psutil

    from mesh.addresses import runtime_dir
    from mesh.supervisor.lock import holder

    found = []
    for host in topology.hosts:
        if supervisor := holder(runtime_dir(topology), host.name):
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(supervisor.pid))
    return found


async def _ask(topology: "Topology", *, now: bool) -> None:
    """Tell every supervisor; on several hosts, stay until none was heard for a lease."""
    from mesh.addresses import supervisor_id
    from mesh.cli.cluster import visitor
    from mesh.wire.control import Stop
    from mesh.wire.status import SupervisorStatus

    async with visitor(topology) as sockets:
        for host in topology.hosts:
            sockets.send(supervisor_id(host.name), Stop(now=now))
        if len(topology.hosts) == 1:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(topology.timing.lease_s) as silence:
                async for _, status in sockets.broadcasts():
                    if isinstance(status, SupervisorStatus):
                        silence.reschedule(asyncio.get_running_loop().time() + topology.timing.lease_s)


def _wait(supervisors: list["psutil.Process"], timeout_s: float) -> list["psutil.Process"]:
    import psutil

    _, late = psutil.wait_procs(supervisors, timeout=timeout_s)
    return list(late)


def _stop_orphans(topology: "Topology", *, now: bool) -> None:
    from mesh.addresses import runtime_dir
    from mesh.supervisor.orphans import stop_orphans

    hosts = [host.name for host in topology.hosts]
    stop_orphans(runtime_dir(topology), hosts, topology.timing.drain_s, print_line, now=now)
