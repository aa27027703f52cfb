"""The shell of every process of the mesh: arguments, logs, event loop, signals, exit codes.

A process outlives the supervisor that started it, and drains when it gets SIGTERM or Ctrl-C. What a user can mend ends
it with one clear line a fault on standard error; the stack trace of anything else goes to its log.
"""

import argparse
import asyncio
import faulthandler
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import structlog
import uvloop
import zmq

from mesh.added.stored import load_deployed
from mesh.addresses import owner_of, runtime_dir
from mesh.clock import Clock, SystemClock
from mesh.directory import Directory, directory
from mesh.errors import EXIT_CONFIGURATION, EXIT_FAILURE, EXIT_INTERRUPTED, UserError
from mesh.process import logs
from mesh.process.compiled_core import core_in_words
from mesh.process.fork_server import SERVER_DESCRIPTOR, ForkServer
from mesh.process.incarnations import incarnation_of
from mesh.process.runtime_folder import make_runtime_dir
from mesh.process.ties import NO_TIES, Ties
from mesh.sockets.curve import CurveKey
from mesh.sockets.sockets import Sockets
from mesh.topology.parse import read_text
from mesh.topology.schema import Topology
from mesh.wire.frames import Sender

MAX_FILES = 65_536

M = TypeVar("M")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ProcessShell:
    """What a process is given: who it is, its deployment, the clock, and the event that asks it to drain and return."""

    topology: Topology
    me: Sender
    ties: Ties = NO_TIES
    clock: Clock = field(default_factory=SystemClock)
    drain: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def runtime(self) -> Path:
        """The mesh's folder on this host."""
        return runtime_dir(self.topology)

    def sockets(self, union: object) -> Sockets[M]:
        """This process's bound sockets. ``union`` is what its inbox takes. Raise `UserError` if an address is taken."""
        key, places = self.ties.read_key(self.topology.curve_key), self.ties.read_places()
        return open_sockets(self.me, union, directory(self.topology, places), key, self.topology.timing.status_gap_s)


Serve = Callable[[ProcessShell], Awaitable[None]]


def open_sockets(
    me: Sender, union: object, found: Directory, key: CurveKey | None, status_gap_s: float = 0.0
) -> Sockets[M]:
    """A process's bound sockets. Raise `UserError` if an address is taken."""
    sockets: Sockets[M] = Sockets(me, found, union, key=key, status_gap_s=status_gap_s)
    try:
        sockets.bind()
    except zmq.ZMQError as error:
        mine = found.listening(me.process)
        raise UserError(f"{me.process}: cannot listen on {mine.inbox} and {mine.broadcast}: {error.strerror}") from None
    return sockets


def run_process(
    program: str,
    ids: Callable[[Topology], Iterable[str]],
    serve: Serve,
    argv: Sequence[str] | None = None,
    bring: Callable[[str], None] = lambda library: None,
) -> int:
    """Run one process until it is done; answer its exit code. ``ids`` are those that this program can be. ``bring``: it
    imports a library that a process of it may need.

    As a fork server, do so in each process that is forked.
    """
    words = sys.argv[1:] if argv is None else argv
    if words[-2:-1] == [SERVER_DESCRIPTOR]:
        words = _forked(program, bring, words)
    faulthandler.enable()
    _raise_file_limit()
    arguments = _arguments(program, words)
    ties = Ties.of(arguments)
    ties.end_with_parent()
    try:
        topology = load_deployed(arguments.topology, None if arguments.text is None else read_text(arguments.text))
        _check_id(topology, arguments.id, tuple(ids(topology)))
        runtime = make_runtime_dir(topology)
        file = logs.log_file(runtime, arguments.id)
        logs.configure(arguments.id, topology.log_level, file, logs.standard_terminal())
        host = next(spec.host for spec in topology.processes if spec.id == owner_of(arguments.id))
        me = Sender(arguments.id, incarnation_of(runtime, arguments.id, host, ties.read_places()))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(ProcessShell(topology, me, ties), serve, file))
    except UserError as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _forked(program: str, bring: Callable[[str], None], argv: Sequence[str]) -> Sequence[str]:
    """Be a fork server: return in each of its children, with its arguments."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--with", action="append", default=[], metavar="LIBRARY", dest="libraries")
    parser.add_argument(SERVER_DESCRIPTOR, type=int, dest="descriptor")
    options = parser.parse_args(argv)
    for library in options.libraries:
        bring(library)
    gc.freeze()
    return ForkServer(socket.socket(fileno=options.descriptor)).run()[1:]


def _raise_file_limit() -> None:
    """A gateway has a connection for each client: the usual 1024 files are fewer than the requests that it may hold."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _arguments(program: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=f"One process of a mesh ({program}).")
    parser.add_argument("--topology", type=Path, required=True, metavar="FILE", help="the deployment")
    parser.add_argument("--text", type=Path, metavar="COPY", help="what to read instead of it: how it once was")
    parser.add_argument("--id", required=True, metavar="ID", help="which process of the deployment to be")
    Ties.add_arguments(parser)
    return parser.parse_args(argv)


def _check_id(topology: Topology, process: str, known: Sequence[str]) -> None:
    if process not in known:
        names = ", ".join(dict.fromkeys(map(owner_of, known)))
        raise UserError(f"{topology.path}: has no process {process!r} of this kind; it has {names}")


async def _run(shell: ProcessShell, serve: Serve, file: Path) -> int:
    me = shell.me
    _drain_on_signals(shell.drain)
    log.info("started", pid=os.getpid(), incarnation=me.incarnation, core=core_in_words())
    try:
        await serve(shell)
    except UserError as error:
        log.error("stopped", reason=str(error))
        return _complain(str(error))
    except Exception as error:
        if mendable := user_error_of(error):
            log.error("stopped", reason=str(mendable))
            return _complain(str(mendable))
        log.exception("failed")
        sys.stderr.write(f"{me.process}: internal error: {first_line(error)} (stack trace in {file})\n")
        return EXIT_FAILURE
    log.info("done")
    return 0


def _drain_on_signals(drain: asyncio.Event) -> None:
    """The first SIGTERM or Ctrl-C asks to drain; the second has its usual effect."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def request() -> None:
        log.info("asked to drain")
        drain.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, request)


def user_error_of(error: BaseException) -> UserError | None:
    """The `UserError` behind a failure, which a task group may have wrapped; None if anything else failed too."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, BaseExceptionGroup):
        mendable = [user_error_of(inner) for inner in error.exceptions]
        return mendable[0] if all(mendable) else None
    return None


def first_line(error: BaseException) -> str:
    """Kind and text of a failure, of the first one of a group, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _complain(text: str) -> int:
    sys.stderr.write(f"{text}\n")
    return EXIT_CONFIGURATION
