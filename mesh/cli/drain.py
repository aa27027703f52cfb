"""``mesh drain``: empty a running engine; its requests go on elsewhere, and their clients do not notice."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from mesh.cli.arguments import print_line
from mesh.errors import EXIT_FAILURE, UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.messages import EngineStatus, SupervisorMessage
    from mesh.sockets import Sockets
    from mesh.topology.schema import Topology

USAGE = "mesh drain [FILE] ENGINE [--undo] [--timeout SECONDS]"
TIMEOUT_S = 60.0


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("drain", usage=USAGE, help="empty an engine: its requests move to others")
    parser.add_argument("words", nargs="+", metavar="FILE ENGINE", help="the deployment; which engine")
    parser.add_argument("--undo", action="store_true", help="let it serve again")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS", help=f"(default: {TIMEOUT_S:g})")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli.arguments import split_topology
    from mesh.cli.cluster import may_run
    from mesh.cli.engine_status import check_engine
    from mesh.topology.parse import load

    file, words = split_topology(options.words)
    if len(words) != 1:
        raise UserError(f"one engine is needed; usage: {USAGE}")
    topology, engine = load(file), words[0]
    check_engine(topology, engine)
    if not may_run(topology):
        sys.stderr.write(f"mesh {topology.name!r} is not running; start it with `mesh up {file}`\n")
        return EXIT_FAILURE
    problem = asyncio.run(_undo(topology, engine) if options.undo else _drain(topology, engine, options.timeout))
    if problem is not None:
        sys.stderr.write(f"{problem}\n")
        return EXIT_FAILURE
    print_line(
        f"{engine} serves again" if options.undo else f"{engine} is empty and takes nothing new (--undo: it does)"
    )
    return 0


async def _undo(topology: "Topology", engine: str) -> str | None:
    from mesh.cli.cluster import visitor
    from mesh.messages import Drain, ProcessState

    async with visitor(topology) as sockets:
        status = await _tell(topology, sockets, engine, Drain(undo=True), ProcessState.READY)
    if isinstance(status, str):
        return status
    return None if status.state is ProcessState.READY else f"{engine} is {status.state}: it is about to stop"


async def _drain(topology: "Topology", engine: str, timeout_s: float) -> str | None:
    from mesh.cli.cluster import visitor
    from mesh.cli.engine_status import listen
    from mesh.messages import Drain, ProcessState

    async with visitor(topology) as sockets:
        status = await _tell(topology, sockets, engine, Drain(), ProcessState.DRAINING)
        if isinstance(status, str):
            return status
        progress = Progress(engine)
        last = await listen(sockets, engine, progress.is_over, timeout_s)
    if last is not None and is_empty(last):
        return None
    left = "its state is not known" if last is None else _what_is_left(last)
    return f"{engine} was not empty after {timeout_s:g} s: {left}; it goes on draining"


async def _tell(
    topology: "Topology", sockets: "Sockets[SupervisorMessage]", engine: str, message: object, state: object
) -> "EngineStatus | str":
    """Send it, and wait for a status that shows it; else why there is none."""
    from mesh.cli.engine_status import listen, silent

    timing = topology.timing
    if await listen(sockets, engine, lambda _: True, timing.lease_s) is None:
        return silent(engine, timing.lease_s)
    sockets.send(engine, message)  # type: ignore[arg-type]
    timeout_s = timing.lease_s + timing.reply_s
    status = await listen(sockets, engine, lambda status: status.state is state, timeout_s)
    return silent(engine, timeout_s) if status is None else status


class Progress:
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
