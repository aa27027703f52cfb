"""``mesh up``: start the processes of a deployment on this host, or adopt those that run, and keep them running."""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from mesh.cli.arguments import add_topology, choose_host, print_line
from mesh.cli.takeover import Takeover
from mesh.errors import EXIT_FAILURE

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.cli.arguments import Subparsers
    from mesh.cli.view import View
    from mesh.supervisor.plan import StartPlan
    from mesh.topology.schema import Topology


READY = b"ready"


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("up", help="start a mesh and keep it running until Ctrl-C")
    add_topology(parser)
    parser.add_argument(
        "--detach", action="store_true", help="return when the mesh is ready; it goes on until `mesh down`"
    )
    parser.add_argument(
        "--replace", action="store_true", help="replace all that runs already, one at a time: after an upgrade"
    )
    parser.add_argument("--host", metavar="NAME", help="which host of the topology this machine is, if it has several")
    parser.add_argument(
        "--ready-fd", type=int, help=argparse.SUPPRESS
    )  # of a detached mesh: where to say that it is ready
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.addresses import supervisor_id
    from mesh.cli.view import make_view
    from mesh.process.logs import output_file
    from mesh.supervisor.preflight import check_interpreters, check_ipc_paths
    from mesh.topology.further import check_further
    from mesh.topology.parse import load, read_text

    text = read_text(options.file)
    topology = load(options.file, text)
    host = choose_host(topology, options.host)
    remarks = check_further(topology)
    if options.detach:
        return _detach(options)
    check_ipc_paths(topology)
    check_interpreters(topology, host)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the supervisor handles both
    takeover = Takeover.plan(topology, host, text, replace_all=options.replace)
    for remark in remarks:
        print_line(f"note: {remark}")
    if code := _prepare_models(topology, host):
        return code
    with takeover.begun() as plan:
        output = output_file(takeover.runtime, supervisor_id(host))
        view = make_view(topology, host, options.file, lambda ok: _announce(options.ready_fd, output, ok))
        asyncio.run(_supervise(takeover, plan, view))
    return 0


def _prepare_models(topology: "Topology", host: str) -> int:
    """Fetch and convert what is not in the cache yet, in a process of its own: it shows its progress and its errors."""
    engines = [engine for engine in topology.engines if engine.host == host]
    names = {name for engine in engines for name in engine.services}
    if any(gateway.host == host for gateway in topology.gateways):
        names |= {service.name for service in topology.services}
    references = dict.fromkeys(service.model for service in topology.services if service.name in names)
    command = [sys.executable, "-m", "engines.models", "prepare", *references]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode


async def _supervise(takeover: Takeover, plan: "StartPlan", view: "View") -> None:
    """The composition root of a supervisor."""
    import time

    from mesh.addresses import supervisor_id
    from mesh.clock import SystemClock
    from mesh.errors import UserError
    from mesh.process.process import next_incarnation, open_sockets, user_error_of
    from mesh.sockets.sockets import Sockets
    from mesh.supervisor.supervisor import STEP_DOWN, Supervisor
    from mesh.wire.frames import Sender
    from mesh.wire.messages import SupervisorMessage

    topology, host, runtime = takeover.topology, takeover.host, takeover.runtime
    process = supervisor_id(host)
    me = Sender(process, next_incarnation(runtime, process, time.time_ns() // 1_000_000))
    sockets: Sockets[SupervisorMessage] = open_sockets(topology, me, SupervisorMessage)
    supervisor = Supervisor(
        host,
        commands=takeover.commands,
        plan=plan,
        sockets=sockets,
        runtime=runtime,
        topology=takeover.copy,
        timing=topology.timing,
        clock=SystemClock(),
        on_change=view.changed,
    )

    def interrupt() -> None:
        view.stopping()
        supervisor.stop()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(STEP_DOWN, supervisor.step_down)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    try:
        with view:
            await supervisor.run(view.ready)
            if supervisor.has_stepped_down:
                view.left()
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
    if options.replace:
        command += ["--replace"]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[writer], start_new_session=True)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        try:
            if told := pipe.read():
                return 0 if told == READY else EXIT_FAILURE
            return child.wait() or EXIT_FAILURE
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            raise


def _announce(ready_fd: int | None, output_path: "Path", ok: bool) -> None:
    """A detached mesh leaves the terminal when it is ready; what it prints later goes to its output file."""
    if ready_fd is None:
        return
    sys.stdout.flush()
    output = os.open(output_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.write(ready_fd, READY if ok else b"not all")
    os.close(ready_fd)
