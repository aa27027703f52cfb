"""``mesh drain``: empty running engines; their requests go on elsewhere, and their clients do not notice."""

import argparse
import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mesh.cli.arguments import add_timeout, print_line
from mesh.errors import CommandError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.sockets.sockets import Sockets
    from mesh.topology.schema import Topology
    from mesh.wire.control import Drain, ProcessState
    from mesh.wire.messages import SupervisorMessage
    from mesh.wire.status import EngineStatus

USAGE = "mesh drain [FILE] ENGINE|--host NAME [--undo] [--timeout SECONDS]"
TIMEOUT_S = 60.0


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("drain", usage=USAGE, help="empty an engine: its requests move to others")
    parser.add_argument("words", nargs="*", metavar="FILE ENGINE", help="the deployment; which engine")
    parser.add_argument("--host", metavar="NAME", help="all engines that run on this host, instead of one")
    parser.add_argument("--undo", action="store_true", help="let it serve again")
    add_timeout(parser, TIMEOUT_S)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    topology, engines = _drained(options)
    if engines[0:1] and engines[0] in topology.servers:
        from mesh.cli.changes.server_drain import drain_server

        asyncio.run(drain_server(topology, engines[0], undo=options.undo, timeout_s=options.timeout))
    elif options.undo:
        engines = asyncio.run(_undo(topology, engines))
    else:
        engines = asyncio.run(_drain(topology, engines, options.timeout))
    for engine in engines:
        print_line(
            f"{engine} serves again" if options.undo else f"{engine} is empty and takes nothing new (--undo: it does)"
        )
    return 0


def _drained(options: argparse.Namespace) -> tuple["Topology", Sequence[str]]:
    """Find the engines that are meant, and the deployment that has them."""
    from mesh.cli.arguments import choose_host
    from mesh.cli.changes.engine_status import open_mesh, split_words
    from mesh.cli.cluster import require_running
    from mesh.topology.parse import load

    if options.host is None:
        file, (engine,) = split_words(options.words, "one engine is", 1, USAGE)
        return open_mesh(file, engine), [engine]
    file, _ = split_words(options.words, "no engine but --host is", 0, USAGE)
    topology = load(file)
    host = choose_host(topology, options.host)
    require_running(topology, file)
    return topology, [engine.id for engine in topology.engines if engine.host == host]


async def _undo(topology: "Topology", engines: Sequence[str]) -> Sequence[str]:
    """Answer those that were told."""
    from mesh.cli.cluster import visitor
    from mesh.wire.control import Drain, ProcessState

    async with visitor(topology) as sockets:
        running = await _running(topology, sockets, engines)
        for engine in running:
            status = await _tell(topology, sockets, engine, Drain(undo=True), ProcessState.READY)
            if status.state is not ProcessState.READY:
                raise CommandError(f"{engine} is {status.state}: it is about to stop")
    return running


async def _drain(topology: "Topology", engines: Sequence[str], timeout_s: float) -> Sequence[str]:
    """All of them at once. Answer those that were told, which are empty then."""
    from mesh.cli.changes.engine_status import listen
    from mesh.cli.cluster import visitor
    from mesh.wire.control import Drain, ProcessState

    async with visitor(topology) as sockets:
        running = await _running(topology, sockets, engines)
        ends_at = asyncio.get_running_loop().time() + timeout_s
        for engine in running:
            await _tell(topology, sockets, engine, Drain(), ProcessState.DRAINING)
        for engine in running:
            left_s = max(topology.timing.lease_s, ends_at - asyncio.get_running_loop().time())
            last = await listen(sockets, engine, DrainProgress(engine).is_over, left_s)
            if last is None or not is_empty(last):
                left = "its state is not known" if last is None else _what_is_left(last)
                raise CommandError(f"{engine} was not empty after {timeout_s:g} s: {left}; it goes on draining")
    return running


async def _running(
    topology: "Topology", sockets: "Sockets[SupervisorMessage]", engines: Sequence[str]
) -> Sequence[str]:
    """Leave out those of a host that do not run. An engine that is named is asked all the same."""
    from mesh.cli.cluster import collect

    if len(engines) == 1:
        return engines
    statuses = await collect(topology, sockets)
    return [engine for engine in engines if engine in statuses]


async def _tell(
    topology: "Topology",
    sockets: "Sockets[SupervisorMessage]",
    engine: str,
    message: "Drain",
    state: "ProcessState",
) -> "EngineStatus":
    """Send it, and wait for a status that shows it."""
    from mesh.cli.changes.engine_status import hear, hear_anything

    await hear_anything(topology, sockets, engine)
    sockets.send(engine, message)
    timeout_s = topology.timing.lease_s + topology.timing.reply_s
    return await hear(topology, sockets, engine, lambda status: status.state is state, timeout_s)


class DrainProgress:
    """One line for each change of what is left."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._said = ""

    def is_over(self, status: "EngineStatus") -> bool:
        if is_empty(status):
            return True
        line = _what_is_left(status)
        if line != self._said:
            print_line(f"{self._engine}: {line}")
        self._said = line
        return False


def is_empty(status: "EngineStatus") -> bool:
    return not (status.num_tokens or status.num_running or status.num_waiting or status.num_migrating_out)


def _what_is_left(status: "EngineStatus") -> str:
    running, moving = status.num_running, status.num_migrating_out
    problem = status.last_aborted_migration
    return f"{running} running, {moving} moving" + (f"; last refusal: {problem}" if problem and not moving else "")
