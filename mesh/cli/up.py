"""``mesh up``: start the processes of a deployment on this host, and keep them running."""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from mesh.cli.arguments import add_topology, choose_host, print_line
from mesh.errors import EXIT_FAILURE

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.cli.arguments import Subparsers
    from mesh.cli.view import View
    from mesh.topology.schema import Topology


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("up", help="start a mesh and keep it running until Ctrl-C")
    add_topology(parser)
    parser.add_argument(
        "--detach", action="store_true", help="return when the mesh is ready; it goes on until `mesh down`"
    )
    parser.add_argument("--host", metavar="NAME", help="which host of the topology this machine is, if it has several")
    parser.add_argument(
        "--ready-fd", type=int, help=argparse.SUPPRESS
    )  # of a detached mesh: where to say that it is ready
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.addresses import supervisor_id
    from mesh.cli.view import make_view
    from mesh.logs import configure, log_file
    from mesh.process import make_runtime_dir
    from mesh.supervisor import lock
    from mesh.supervisor.preflight import check_interpreters, check_ipc_paths
    from mesh.topology.further import check_further
    from mesh.topology.parse import load

    topology = load(options.file)
    host = choose_host(topology, options.host)
    remarks = check_further(topology)
    if options.detach:
        return _detach(options)
    check_ipc_paths(topology)
    check_interpreters(topology, host)
    runtime = make_runtime_dir(topology)
    held = lock.acquire(runtime, host, topology.path)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the supervisor handles both
    try:
        configure(supervisor_id(host), topology.log_level, log_file(runtime, supervisor_id(host)))
        _make_room(topology, host, runtime)
        for remark in remarks:
            print_line(f"note: {remark}")
        if code := _prepare_models(topology, host):
            return code
        view = make_view(topology, host, options.file, on_ready=lambda: _announce(options.ready_fd, runtime, host))
        asyncio.run(_supervise(topology, host, runtime, view))
    finally:
        held.release()
    return 0


def _make_room(topology: "Topology", host: str, runtime: "Path") -> None:
    """End what an earlier supervisor left behind; make sure that the gateways can listen."""
    from mesh.supervisor.orphans import stop_orphans
    from mesh.supervisor.preflight import check_ports, remove_stale_sockets

    stop_orphans(runtime, [host], topology.timing.drain_s, print_line)
    remove_stale_sockets(topology, host)
    check_ports(topology, host)


def _prepare_models(topology: "Topology", host: str) -> int:
    """Fetch and convert what is not in the cache yet, in a process of its own: it shows its progress and its errors."""
    engines = [engine for engine in topology.engines if engine.host == host]
    names = {name for engine in engines for name in engine.services}
    if any(gateway.host == host for gateway in topology.gateways):
        names |= {service.name for service in topology.services}
    references = dict.fromkeys(service.model for service in topology.services if service.name in names)
    command = [sys.executable, "-m", "engines.models", "prepare", *references]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode


async def _supervise(topology: "Topology", host: str, runtime: "Path", view: "View") -> None:
    """The composition root of a supervisor."""
    import time

    from mesh.addresses import supervisor_id
    from mesh.clock import SystemClock
    from mesh.errors import UserError
    from mesh.messages import Sender, SupervisorMessage
    from mesh.process import next_incarnation, open_sockets, user_error_of
    from mesh.sockets import Sockets
    from mesh.supervisor.command import child_commands
    from mesh.supervisor.supervisor import Supervisor

    process = supervisor_id(host)
    me = Sender(process, next_incarnation(runtime, process, time.time_ns() // 1_000_000))
    sockets: Sockets[SupervisorMessage] = open_sockets(topology, me, SupervisorMessage)
    supervisor = Supervisor(
        host,
        commands=list(child_commands(topology, host)),
        sockets=sockets,
        runtime=runtime,
        timing=topology.timing,
        clock=SystemClock(),
        on_change=view.changed,
    )

    def interrupt() -> None:
        view.stopping()
        supervisor.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    try:
        with view:
            await supervisor.run(view.ready)
    except BaseExceptionGroup as group:
        if error := user_error_of(group):
            raise UserError(str(error)) from None
        raise
    finally:
        await sockets.close()


def _detach(options: argparse.Namespace) -> int:
    """Start the mesh in a session of its own, and wait until it is ready or ended."""
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "mesh.cli", "up", str(options.file), "--ready-fd", str(writer)]
    if options.host:
        command += ["--host", options.host]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[writer], start_new_session=True)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        try:
            if pipe.read():
                return 0
            return child.wait() or EXIT_FAILURE
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            raise


def _announce(ready_fd: int | None, runtime: "Path", host: str) -> None:
    """A detached mesh leaves the terminal when it is ready; what it prints later goes to its output file."""
    if ready_fd is None:
        return
    from mesh.addresses import supervisor_id
    from mesh.logs import output_file

    sys.stdout.flush()
    output = os.open(output_file(runtime, supervisor_id(host)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.write(ready_fd, b"ready")
    os.close(ready_fd)
