"""``mesh start`` and ``mesh stop``: whether an engine of a running mesh runs."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mesh.cli.arguments import add_timeout, print_line
from mesh.errors import CommandError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.sockets.sockets import Sockets
    from mesh.topology.schema import Topology
    from mesh.wire.messages import BroadcastMessage, SupervisorMessage
    from mesh.wire.status import ChildStatus

START, STOP = "mesh start [FILE] ENGINE [--timeout SECONDS]", "mesh stop [FILE] ENGINE [--last] [--timeout SECONDS]"
HELP = "the deployment; which engine"
TIMEOUT_S = 120.0
OVER = ("standby", "stopped")  # states of a process that has ended

Work = Callable[["Topology", str, argparse.Namespace], Coroutine[Any, Any, None]]


def register(subparsers: "Subparsers") -> None:
    _register(subparsers, "start", START, "start an engine that is on standby or was stopped", _start)
    parser = _register(subparsers, "stop", STOP, "end an engine of a running mesh: its requests move to others", _stop)
    parser.add_argument(
        "--last", action="store_true", help="stop it even if no other engine serves one of its services"
    )


def _register(subparsers: "Subparsers", name: str, usage: str, text: str, work: Work) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(name, usage=usage, help=text)
    parser.add_argument("words", nargs="+", metavar="FILE ENGINE", help=HELP)
    add_timeout(parser, TIMEOUT_S)
    parser.set_defaults(run=_run, work=work, usage=usage)
    return parser


def _run(options: argparse.Namespace) -> int:
    from mesh.cli.changes.engine_status import open_mesh, split_words

    file, (engine,) = split_words(options.words, "one engine is", 1, options.usage)
    asyncio.run(options.work(open_mesh(file, engine), engine, options))
    return 0


async def _start(topology: "Topology", engine: str, options: argparse.Namespace) -> None:
    """Return once it is ready."""
    from mesh.cli.cluster import visitor
    from mesh.cluster.locate import find_room

    await find_room(topology, engine, options.timeout, print_line)
    async with visitor(topology) as sockets:
        if (await _child(topology, sockets, engine)).state == "running":
            print_line(f"{engine} runs already")
            return
        after = await _change(topology, sockets, engine, running=True, timeout_s=options.timeout)
    if after.state in OVER:
        raise CommandError(f"{engine} did not start: {after.last_exit or 'it ended'} (`mesh logs {engine}`)")
    if after.state != "running":
        raise CommandError(f"{engine} is {after.state} after {options.timeout:g} s; it goes on (`mesh logs {engine}`)")
    print_line(f"{engine} serves")


async def _stop(topology: "Topology", engine: str, options: argparse.Namespace) -> None:
    """Return once it has ended."""
    from mesh.cli.cluster import collect, visitor

    async with visitor(topology) as sockets:
        if (await _child(topology, sockets, engine)).state == "standby":
            print_line(f"{engine} does not run")
            return
        missed = _served_only_by(engine, await collect(topology, sockets))
        if missed and not options.last:
            raise CommandError(f"{engine} is the only engine that serves {missed[0]}: --last stops it all the same")
        after = await _change(topology, sockets, engine, running=False, timeout_s=options.timeout)
    if after.state not in OVER:
        raise CommandError(f"{engine} has not ended after {options.timeout:g} s: its requests move or end first")
    print_line(f"{engine} is on standby; `mesh start {engine}` starts it again")


def _served_only_by(engine: str, statuses: Mapping[str, "BroadcastMessage"]) -> list[str]:
    from mesh.wire.control import ProcessState
    from mesh.wire.status import EngineStatus

    ready = {
        name: {service.name for service in status.services if not service.is_leaving}
        for name, status in statuses.items()
        if isinstance(status, EngineStatus) and status.state is ProcessState.READY
    }
    mine = ready.pop(engine, set())
    return sorted(mine.difference(*ready.values()))


async def _change(
    topology: "Topology", sockets: "Sockets[SupervisorMessage]", engine: str, *, running: bool, timeout_s: float
) -> "ChildStatus":
    """Ask for it until something happens, and see it through; the last that the supervisor said of the engine."""
    from mesh.addresses import supervisor_id
    from mesh.wire.control import SetRunning

    supervisor = supervisor_id(topology.engine(engine).host)
    before = seen = await _child(topology, sockets, engine)
    has_begun = False
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            sockets.send(supervisor, SetRunning(engine, running))
            async for seen in _children(sockets, supervisor, engine):
                if seen.state != before.state:
                    print_line(f"{engine}: {seen.state}")
                    has_begun, before = True, seen
                if seen.state == ("running" if running else "standby") or (has_begun and seen.state in OVER):
                    break
                if not has_begun:
                    sockets.send(supervisor, SetRunning(engine, running))
    return seen


async def _child(topology: "Topology", sockets: "Sockets[SupervisorMessage]", engine: str) -> "ChildStatus":
    """The engine as its supervisor sees it."""
    from mesh.addresses import supervisor_id

    host = topology.engine(engine).host
    with suppress(TimeoutError):
        async with asyncio.timeout(topology.timing.lease_s):
            async for child in _children(sockets, supervisor_id(host), engine):
                return child
    raise CommandError(f"the supervisor of host {host} says nothing of {engine}: is `mesh up` running there?")


async def _children(
    sockets: "Sockets[SupervisorMessage]", supervisor: str, engine: str
) -> AsyncIterator["ChildStatus"]:
    """What its supervisor says of the engine, again and again."""
    from mesh.wire.status import SupervisorStatus

    async for sender, status in sockets.broadcasts():
        if sender.process == supervisor and isinstance(status, SupervisorStatus):
            for child in status.children:
                if child.process == engine:
                    yield child
