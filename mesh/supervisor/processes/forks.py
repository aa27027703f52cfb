"""Starts the processes of a supervisor: they are forked by a server that has imported what they need, or executed.

Each kind of process has a server of its own, which is started with the first of them; a restart takes a tenth of the
time and shares the memory of what was imported. Where a server fails, processes are executed.
"""

import asyncio
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

import msgspec
import structlog

from mesh.process.fork_server import (
    MAX_ANSWER_BYTES,
    SERVER_DESCRIPTOR,
    SHARED,
    Answer,
    Forked,
    ForkEnded,
    ForkRequest,
    NotForked,
)
from mesh.supervisor.processes.command import ChildCommand

CODE_S = 1.0  # from a process's end to the word of its server of how it ended

log = structlog.get_logger()


class ForkRefusedError(OSError):
    """The system lets a server start no process now."""


class StartedProcess(Protocol):
    """A process that was started here."""

    pid: int

    async def code(self) -> int | None:
        """How it ended, as Python counts it, once it has; None: nobody can tell any more."""

    def let_go(self) -> None:
        """Nobody will ask how it ends."""

    def kill(self) -> None:
        """End it at once: nobody watches it."""


class Executed:
    """A child of this process."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self.pid = child.pid
        self._child = child

    async def code(self) -> int | None:
        return self._child.wait()

    def let_go(self) -> None:
        if self._child.poll() is None:
            self._child.returncode = 0  # or Python would complain that nobody waits for it

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()


class ForkedProcess:
    """A child of a fork server, which says how it ends."""

    def __init__(self, pid: int, code: "asyncio.Future[int | None]", forget: Callable[[int], None]) -> None:
        self.pid = pid
        self._code = code
        self._forget = forget

    async def code(self) -> int | None:
        await asyncio.wait([self._code], timeout=CODE_S)
        told = self._code.result() if self._code.done() else None
        return _reap(self.pid) if told is None else told

    def let_go(self) -> None:
        self._forget(self.pid)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.let_go()


def _reap(pid: int) -> int | None:
    """Return the code of a process that this one has adopted, as the first of a container does; None: it has not."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None


class Forks:
    """One fork server, seen from a supervisor that asks it for processes."""

    def __init__(self, connection: socket.socket, server: "subprocess.Popen[bytes] | None" = None) -> None:
        self._connection = connection
        self._server = server
        self._asked: deque[asyncio.Future[int]] = deque()
        self._codes: dict[int, asyncio.Future[int | None]] = {}
        self.has_ended = False
        connection.setblocking(False)
        asyncio.get_running_loop().add_reader(connection, self._hear)

    @classmethod
    def start(cls, command: ChildCommand) -> "Forks":
        """Start a server for processes of this kind. Raise `OSError`."""
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            server = subprocess.Popen(
                [*command.server, SERVER_DESCRIPTOR, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what is wrong with imports, a process that is executed says
                env={**os.environ, **command.env},
                start_new_session=True,
                pass_fds=[its.fileno()],
            )
        except OSError:
            mine.close()
            raise
        finally:
            its.close()
        return cls(mine, server)

    @classmethod
    def connect(cls, path: str) -> "Forks":
        """Use a server that others use, too. Raise `OSError`."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            raise
        return cls(connection)

    async def fork(self, command: ChildCommand, output: IO[bytes], limit_s: float) -> ForkedProcess:
        """Have a process forked, once the server has imported all. Raise `OSError`."""
        words = list(command.argv[command.argv.index("-m") + 1 :])
        request = ForkRequest(words, {**os.environ, **command.env}, str(Path.cwd()))
        socket.send_fds(self._connection, [msgspec.msgpack.encode(request)], [output.fileno()])
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        await asyncio.wait([asked], timeout=limit_s)
        if not asked.done():
            self._asked.remove(asked)  # nobody waits for it any more
            self.close()
            raise TimeoutError(f"no process after {limit_s:g} s")
        pid = asked.result()
        return ForkedProcess(pid, self._codes[pid], self._forget)

    def close(self) -> None:
        """End the server; its processes go on."""
        if self.has_ended:
            return
        self.has_ended = True
        asyncio.get_running_loop().remove_reader(self._connection)
        self._connection.close()
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        for asked in self._asked:
            asked.set_exception(ConnectionResetError("the fork server has ended"))
        for code in self._codes.values():
            if not code.done():
                code.set_result(None)

    def _hear(self) -> None:
        try:
            data = self._connection.recv(MAX_ANSWER_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        match msgspec.msgpack.decode(data, type=Answer):
            case Forked(pid):
                self._codes[pid] = asyncio.get_running_loop().create_future()
                self._asked.popleft().set_result(pid)
            case NotForked(reason):
                self._asked.popleft().set_exception(ForkRefusedError(reason))
            case ForkEnded(pid, code) if pid in self._codes and not self._codes[pid].done():
                self._codes[pid].set_result(code)

    def _forget(self, pid: int) -> None:
        self._codes.pop(pid, None)


class ProcessSource:
    """Starts the processes of one supervisor. ``limit_s``: that a server has for the first of them."""

    def __init__(self, limit_s: float, environment: Mapping[str, str] = os.environ) -> None:
        self._limit_s = limit_s
        self._shared = environment.get(SHARED, "")
        self._servers: dict[Hashable, Forks] = {}
        self._failed: set[Hashable] = set()  # servers that failed once: their processes are executed

    async def start(self, command: ChildCommand, output: IO[bytes]) -> StartedProcess:
        """Start a process in a session of its own: the supervisor alone handles Ctrl-C. Raise `OSError`."""
        key = self._shared or (command.server, *command.env.items())  # libraries read variables when they load
        while command.server and key not in self._failed:
            server = self._servers.get(key)
            is_new = server is None or server.has_ended
            try:
                if server is None or is_new:
                    server = Forks.connect(self._shared) if self._shared else Forks.start(command)
                    self._servers[key] = server
                return await server.fork(command, output, self._limit_s)
            except ForkRefusedError:
                raise
            except OSError as error:
                if is_new or isinstance(error, TimeoutError):  # else it has ended since it served the last time
                    self._failed.add(key)
                    log.warning("fork server failed", child=command.process, reason=str(error))
                if server is not None:
                    server.close()
        return Executed(_execute(command, output))

    def close(self) -> None:
        """End all servers. Processes go on."""
        for server in self._servers.values():
            server.close()


def _execute(command: ChildCommand, output: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command.argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**os.environ, **command.env},
        start_new_session=True,
        pass_fds=command.descriptors,
    )
