"""The part of a fork server that runs in it: a program that stops once it has imported all it needs, and is forked.

A process that is forked has the imports already, and shares their memory. Requests and answers are single messages of
Unix sockets; what a child writes to comes with its request. The server ends with the one who started it; its children
go on.
"""

import os
import selectors
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from setproctitle import setproctitle

from mesh.errors import UserError

SHARED: Final = "MESHSERVE_FORK_SERVER"  # an environment variable: the socket of a server that serves several meshes
SERVER_DESCRIPTOR: Final = "--fork-server"  # the option, with the descriptor of the owner's connection
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAX_REQUEST_BYTES: Final = 2**20
MAX_ANSWER_BYTES: Final = 4096


class ForkRequest(msgspec.Struct, frozen=True):
    """Asks for one process. ``argv``: its program, as ``python -m`` takes it, and arguments. ``env``: all variables."""

    argv: list[str]
    env: dict[str, str]
    folder: str


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """Answers a request: requests are answered in their order."""

    pid: int


class NotForked(msgspec.Struct, frozen=True, tag="not_forked"):
    """Answers a request that the system refused."""

    reason: str


class ForkEnded(msgspec.Struct, frozen=True, tag="ended"):
    """Tells how a process ended, to the one who asked for it. ``code``: as Python counts it."""

    pid: int
    code: int


Answer = Forked | NotForked | ForkEnded


class ForkServer:
    """Forks this process. ``owner``: the server ends when its other end is closed; it may ask for processes, too.
    ``listener``: for others who may.
    """

    def __init__(self, owner: socket.socket, listener: socket.socket | None = None) -> None:
        self._owner, self._listener = owner, listener
        self._selector = selectors.DefaultSelector()
        for connection in filter(None, (owner, listener)):
            self._selector.register(connection, selectors.EVENT_READ)

    def run(self) -> list[str]:
        """Return in each child, with its ``argv``; never in the server. Raise `UserError` if it cannot be forked."""
        if num_threads() > 1:
            raise UserError("a process with several threads cannot be forked")
        while True:
            for key, _ in self._selector.select():
                if isinstance(key.data, tuple):
                    self._tell_end(*key.data)
                elif key.fileobj is self._listener:
                    self._accept(self._listener)
                elif (argv := self._serve(key.fileobj)) is not None:  # type: ignore[arg-type]
                    return argv

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self._selector.register(connection, selectors.EVENT_READ)

    def _serve(self, connection: socket.socket) -> list[str] | None:
        """Fork one child. Return its ``argv`` in the child, None in the server."""
        try:
            data, files, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 2)
        except ConnectionError:
            data, files = b"", []
        if not data:
            self._leave(connection)
            return None
        request = msgspec.msgpack.decode(data, type=ForkRequest)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # what comes before a child is itself is not the server's
        try:
            pid = os.fork()
        except OSError as error:
            _answer(connection, NotForked(error.strerror or str(error)))
        else:
            if pid == 0:
                self._selector.close()
                for mine in filter(None, (self._owner, self._listener, connection)):
                    mine.close()
                become(request, files)
                return request.argv
            self._tell(connection, pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for file in files:
            os.close(file)
        return None

    def _tell(self, connection: socket.socket, pid: int) -> None:
        """Watch a child and tell of it, in this order: whoever hears of a process hears of its end, too."""
        try:
            watch = os.pidfd_open(pid)
        except OSError as error:  # no descriptors are left: a process that nobody watches must not stay
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            _answer(connection, NotForked(error.strerror or str(error)))
            return
        self._selector.register(watch, selectors.EVENT_READ, (pid, connection))
        if not _answer(connection, Forked(pid)):
            os.kill(pid, signal.SIGKILL)  # nobody would know of it

    def _tell_end(self, pid: int, connection: socket.socket) -> None:
        key = next(key for key in self._selector.get_map().values() if key.data == (pid, connection))
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        _, status = os.waitpid(pid, 0)
        _answer(connection, ForkEnded(pid, os.waitstatus_to_exitcode(status)))

    def _leave(self, connection: socket.socket) -> None:
        if connection is self._owner:
            os._exit(0)  # nothing of what the program would do at its end has begun
        self._selector.unregister(connection)
        connection.close()


def num_threads() -> int:
    """Count the threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def become(request: ForkRequest, outputs: Sequence[int]) -> None:
    """Let this process, which was forked, be as one that was started: in a session of its own, with its own output.
    ``outputs``: a file for both streams, or one for each.
    """
    setproctitle(" ".join(["python", "-m", *request.argv]))  # first: it looks for the variables that are there
    os.setsid()
    for number in (*SIGNALS, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, place in ((nothing, 0), (outputs[0], 1), (outputs[-1], 2)):
        os.dup2(file, place)
    for file in (nothing, *outputs):
        os.close(file)
    os.environ.clear()
    os.environ.update(request.env)
    os.chdir(request.folder)


def _answer(connection: socket.socket, answer: Answer) -> bool:
    """Return False if whoever asked has ended."""
    try:
        return connection.send(msgspec.msgpack.encode(answer), socket.MSG_DONTWAIT) > 0
    except OSError:
        return False
