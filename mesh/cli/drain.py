"""``mesh drain``: empty a running engine; its requests go on elsewhere, and their clients do not notice."""

import argparse
import asyncio
from typing import TYPE_CHECKING

from mesh.cli.arguments import print_line
from mesh.errors import CommandError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.sockets.sockets import Sockets
    from mesh.topology.schema import Topology
    from mesh.wire.control import Drain, ProcessState
    from mesh.wire.messages import SupervisorMessage
    from mesh.wire.status import EngineStatus

USAGE = "mesh drain [FILE] ENGINE [--undo] [--timeout SECONDS]"
TIMEOUT_S = 60.0


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("drain", usage=USAGE, help="empty an engine: its requests move to others")
    parser.add_argument("words", nargs="+", metavar="FILE ENGINE", help="the deployment; which engine")
    parser.add_argument("--undo", action="store_true", help="let it serve again")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS", help=f"(default: {TIMEOUT_S:g})")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli.engine_status import open_mesh, split_words

    file, (engine,) = split_words(options.words, "one engine is", 1, USAGE)
    topology = open_mesh(file, engine)
    asyncio.run(_undo(topology, engine) if options.undo else _drain(topology, engine, options.timeout))
    print_line(
        f"{engine} serves again" if options.undo else f"{engine} is empty and takes nothing new (--undo: it does)"
    )
    return 0


async def _undo(topology: "Topology", engine: str) -> None:
    from mesh.cli.cluster import visitor
    from mesh.wire.control import Drain, ProcessState

    async with visitor(topology) as sockets:
        status = await _tell(topology, sockets, engine, Drain(undo=True), ProcessState.READY)
    if status.state is not ProcessState.READY:
        raise CommandError(f"{engine} is {status.state}: it is about to stop")


async def _drain(topology: "Topology", engine: str, timeout_s: float) -> None:
    from mesh.cli.cluster import visitor
    from mesh.cli.engine_status import listen
    from mesh.wire.control import Drain, ProcessState

    async with visitor(topology) as sockets:
        await _tell(topology, sockets, engine, Drain(), ProcessState.DRAINING)
        last = await listen(sockets, engine, DrainProgress(engine).is_over, timeout_s)
    if last is None or not is_empty(last):
        left = "its state is not known" if last is None else _what_is_left(last)
        raise CommandError(f"{engine} was not empty after {timeout_s:g} s: {left}; it goes on draining")


async def _tell(
    topology: "Topology",
    sockets: "Sockets[SupervisorMessage]",
    engine: str,
    message: "Drain",
    state: "ProcessState",
) -> "EngineStatus":
    """Send it, and wait for a status that shows it."""
    from mesh.cli.engine_status import hear, hear_anything

    await hear_anything(topology, sockets, engine)
    sockets.send(engine, message)
    timeout_s = topology.timing.lease_s + topology.timing.reply_s
    return await hear(sockets, engine, lambda status: status.state is state, timeout_s)


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
