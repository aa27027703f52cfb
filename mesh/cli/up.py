"""``mesh up``: start the processes of a deployment on this host, or adopt those that run, and keep them running."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.cli.arguments import add_topology, choose_host, print_line
from mesh.errors import EXIT_FAILURE, UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.cli.arguments import Subparsers
    from mesh.cli.view import View
    from mesh.process.ties import Ties
    from mesh.supervisor.interrupts import Interrupts
    from mesh.supervisor.plan import StartPlan
    from mesh.supervisor.takeover import Takeover
    from mesh.topology.schema import Topology
    from mesh.wire.status import ChildStatus


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
    parser.add_argument(
        "--host",
        metavar="NAME",
        help="which host of the topology this machine is, if it has several; auto: as Slurm says in a job",
    )
    parser.add_argument(
        "--ready-file", type=Path, metavar="FILE", help="be there as long as all processes of this host serve"
    )
    parser.set_defaults(run=run, ready_fd=None)  # of a detached mesh: where to say that it is ready


def run(options: argparse.Namespace) -> int:
    from mesh.topology.parse import load, read_text
    from mesh.topology.schema import ClusterEngine

    text = read_text(options.file)
    topology = load(options.file, text)
    if topology.cluster is not None and topology.cluster.on is ClusterEngine.KUBERNETES:
        raise UserError(
            f"{options.file}: its hosts are pods; `mesh deploy render {options.file}` makes their manifests"
        )
    is_on_ray = topology.cluster is not None and topology.cluster.on is ClusterEngine.RAY
    if options.detach and not (is_on_ray and _outlives_this_process(topology)):
        return _detach(options)  # the process that stays says what else is wrong
    return _up_on_ray(topology, text, options) if is_on_ray else _up_here(topology, text, options)


def _up_here(topology: "Topology", text: str, options: argparse.Namespace) -> int:
    from mesh.process.left_out import COLOURS, without

    with without(COLOURS):
        from mesh.supervisor.hosting import prepare_models
        from mesh.supervisor.preflight import check_interpreters, check_ipc_paths
        from mesh.supervisor.takeover import Takeover
    from mesh.added.stored import load_deployed
    from mesh.addresses import supervisor_id
    from mesh.cli.first_steps.remarks import new_remarks
    from mesh.process.logs import output_file
    from mesh.supervisor.interrupts import Interrupts
    from mesh.topology.further import check_further

    interrupts = Interrupts()
    interrupts.listen()  # until the supervisor does
    host, ties = _placed(topology, options.host)
    deployed = load_deployed(options.file, text)  # with what was added to the mesh while it ran
    remarks = check_further(deployed)
    check_ipc_paths(topology)
    check_interpreters(topology, host)
    takeover = Takeover.plan(topology, host, text, print_line, replace_all=options.replace, ties=ties)
    for remark in remarks:
        print_line(f"note: {remark}")
    if code := prepare_models(deployed, host):
        return code
    for remark in new_remarks(topology, host, takeover.runtime):
        print_line(remark)
    with takeover.begun() as plan:
        output = output_file(takeover.runtime, supervisor_id(host))
        view = _view(topology, host, options.file, lambda ok: _announce(options.ready_fd, output, ok))
        interrupts.hold()
        asyncio.run(_supervise(takeover, plan, view, _observers(view, options.ready_file), interrupts))
    return 0


def _placed(topology: "Topology", wanted: str | None) -> tuple[str, "Ties"]:
    """Find which host this machine is, and where its processes read where the others are."""
    from mesh.cluster.slurm import AUTO, host_of_task, is_on_slurm, places_file, places_in_job
    from mesh.process.runtime_folder import make_runtime_dir
    from mesh.process.ties import NO_TIES, Ties, write_places

    if not is_on_slurm(topology):
        return choose_host(topology, wanted), NO_TIES
    places = places_in_job(topology, os.environ)
    host = host_of_task(topology, os.environ) if wanted == AUTO else choose_host(topology, wanted)
    file = places_file(make_runtime_dir(topology), host)
    write_places(file, places)
    return host, Ties(places=file)


def _view(topology: "Topology", host: str, file: Path, on_ready: Callable[[bool], None]) -> "View":
    """Whoever sees the mesh start: a live table is for terminals alone, and brings rich."""
    from mesh.cli.view import LineView

    lines = LineView(topology, host, file, on_ready)
    if not sys.stdout.isatty():
        return lines
    from mesh.cli.live_view import LiveView

    return LiveView(lines)


def _observers(view: "View", ready_file: Path | None) -> Callable[[Sequence["ChildStatus"]], None]:
    """Whoever sees each change of a process."""
    from mesh.cli.ready_file import ReadyFile

    if ready_file is None:
        return view.changed
    file = ReadyFile(ready_file)

    def changed(children: Sequence["ChildStatus"]) -> None:
        file.changed(children)
        view.changed(children)

    return changed


def _outlives_this_process(topology: "Topology") -> bool:
    """A cluster of this machine alone ends with the process that started it."""
    return topology.cluster is not None and topology.cluster.address != "local"


def _up_on_ray(topology: "Topology", text: str, options: argparse.Namespace) -> int:
    from mesh.addresses import supervisor_id
    from mesh.cli.view import welcome
    from mesh.cluster.ray.up import up
    from mesh.process.logs import output_file
    from mesh.process.runtime_folder import make_runtime_dir
    from mesh.topology.further import check_further

    for remark in check_further(topology):
        print_line(f"note: {remark}")
    output = output_file(make_runtime_dir(topology), supervisor_id("ray"))

    def greet(addresses: "Mapping[str, str]") -> None:
        for gateway in topology.gateways[:1]:
            print_line(welcome(topology, gateway.host, options.file, addresses.get(gateway.host)))
        _announce(options.ready_fd, output, ok=True)

    stays = not options.detach
    return up(topology, text, print_line, greet, stays=stays)


async def _supervise(
    takeover: "Takeover",
    plan: "StartPlan",
    view: "View",
    on_change: Callable[[Sequence["ChildStatus"]], None],
    interrupts: "Interrupts",
) -> None:
    """Until Ctrl-C, `mesh down` or another supervisor ends it."""
    from mesh.supervisor.hosting import host
    from mesh.supervisor.supervisor import STEP_DOWN, Supervisor

    started: list[Supervisor] = []

    def begin(supervisor: Supervisor) -> None:
        def interrupt() -> None:
            view.stopping()
            supervisor.stop()

        started.append(supervisor)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(STEP_DOWN, supervisor.step_down)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, interrupt)
        if interrupts.has_come:
            interrupt()

    with view:
        await host(takeover, plan, on_start=begin, on_change=on_change, on_ready=view.ready)
        if started[0].has_stepped_down:
            view.left()


def _detach(options: argparse.Namespace) -> int:
    """Start the mesh in a session of its own, and wait until it is ready or ended. It is a fork of this process."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends this before it is ready ends the mesh
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        options.detach, options.ready_fd = False, writer
        return run(options)
    try:
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            if told := pipe.read():
                return 0 if told == READY else EXIT_FAILURE
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or EXIT_FAILURE
    except KeyboardInterrupt:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
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
