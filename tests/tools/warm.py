"""Forks the processes of tests' meshes from one that has imported all that tests import: each saves a second or two.

Supervisors find it by the variable that users may set, too.
"""

import io
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
import structlog

from mesh.process.fork_server import MAX_ANSWER_BYTES, SHARED, Answer, ForkEnded, ForkRequest, ForkServer, NotForked
from tests.tools.orphans import forget_adopting

FORKED = "(processes of meshes, forked for tests)"
WAITING = 128  # supervisors that connect at once


@contextmanager
def fork_server(path: Path, left: Callable[[str, float], None]) -> Iterator[None]:
    """Meanwhile processes can be had by a socket. ``left``: is told the CPU seconds of those that have ended."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen(WAITING)
    server = os.fork()
    if server == 0:
        mine.close()
        _serve(its, listener)
    its.close()
    listener.close()
    os.environ[SHARED] = str(path)
    try:
        yield
    finally:
        del os.environ[SHARED]
        mine.close()
        with suppress(ProcessLookupError, ChildProcessError):  # it has ended before
            os.kill(server, signal.SIGKILL)  # workers, and what they leave, hold their end of its connection
            _, _, usage = os.wait4(server, 0)
            left(FORKED, usage.ru_utime + usage.ru_stime)


def _serve(owner: socket.socket, listener: socket.socket) -> None:
    code = 1
    try:
        forget_adopting()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its owner
        argv = ForkServer(owner, listener).run()
        structlog.reset_defaults()
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = _unbuffered(1), _unbuffered(2)
        sys.argv = ["", *argv[1:]]
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # as at the end of any program
        os._exit(code)


def _unbuffered(descriptor: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(open(descriptor, "wb", 0, closefd=False), write_through=True)


def run_forked(argv: list[str], env: Mapping[str, str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Do as `subprocess.run` does with ``python -m`` and these words."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
        TemporaryFile() as out,
        TemporaryFile() as err,
    ):
        connection.settimeout(timeout_s)
        connection.connect(env[SHARED])
        request = ForkRequest(argv, dict(env), str(Path.cwd()))
        socket.send_fds(connection, [msgspec.msgpack.encode(request)], [out.fileno(), err.fileno()])
        while not isinstance(answer := _answer(connection), ForkEnded):
            if isinstance(answer, NotForked):
                raise OSError(answer.reason)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(argv, answer.code, out.read().decode(), err.read().decode())


def _answer(connection: socket.socket) -> Answer:
    return msgspec.msgpack.decode(connection.recv(MAX_ANSWER_BYTES), type=Answer)
