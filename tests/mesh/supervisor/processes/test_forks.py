"""Processes are forked by servers that fail now and then, and are executed where those cannot help."""

import asyncio
import os
import signal
import socket
import sys
import threading
from contextlib import closing

import psutil
import pytest

from mesh.errors import UserError
from mesh.process.fork_server import SHARED, ForkServer
from mesh.supervisor.processes.command import ENGINE, ChildCommand
from mesh.supervisor.processes.forks import Executed, ForkedProcess, ForkRefusedError, ProcessSource
from tests.tools.ended import has_ended
from tests.tools.orphans import adopt

# A program like those of a mesh: forked or executed, it runs the Python that it is given.
PROGRAM = """
import os, socket, sys
words = sys.argv[1:]
if words[-2] == "--fork-server":
    from mesh.process.fork_server import ForkServer
    words = ForkServer(*(socket.socket(fileno=int(number)) for number in words[-1].split(","))).run()[1:]
exec(words[1])
"""
LIMIT_S = 60.0
SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def command(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)

    def command(code, server=None, **env):
        start = (sys.executable, "-m", "program")
        path = os.pathsep.join([str(tmp_path), *sys.path])
        if server is None:
            server = start
        return ChildCommand("e", ENGINE, (*start, "--run", code), env={"PYTHONPATH": path, **env}, server=server)

    return command


@pytest.fixture
def output(tmp_path):
    with (tmp_path / "output").open("wb+") as file:
        yield file


async def until(condition):
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110  other processes do it
            await asyncio.sleep(0.01)


async def outcome(process):
    """Wait for its end, as whoever watches it does, and for its code."""
    await until(lambda: has_ended(process.pid))
    return await process.code()


async def test_a_forked_process_is_as_one_that_was_executed(command, output):
    code = "print(os.environ['WHAT'], sys.stdin.read() == '', os.getsid(0) == os.getpid(), flush=True); os._exit(3)"
    with closing(ProcessSource(LIMIT_S, {SHARED: ""})) as source:
        for server in (None, ()):
            process = await source.start(command(code, server, WHAT="this"), output)
            assert isinstance(process, ForkedProcess if server is None else Executed)
            assert await outcome(process) == 3
    output.seek(0)
    assert output.read() == b"this True True\n" * 2


async def test_how_it_was_killed_is_known(command, output):
    with closing(ProcessSource(LIMIT_S, {})) as source:
        first, second = [await source.start(command(SLEEP), output) for _ in range(2)]
        assert psutil.Process(first.pid).ppid() == psutil.Process(second.pid).ppid() != os.getpid()
        await until(lambda: " ".join(psutil.Process(first.pid).cmdline()).strip() == f"python -m program --run {SLEEP}")
        os.kill(first.pid, signal.SIGKILL)
        assert await outcome(first) == -signal.SIGKILL
        second.kill()


@pytest.fixture(params=[False, True])
def adopts(request):
    """Tell whether this process adopts what a server leaves, as the first process of a container does."""
    adopt(is_on=request.param)
    yield request.param
    adopt(is_on=False)


async def test_processes_outlive_their_server_and_the_next_one_has_another(command, output, adopts):
    with closing(ProcessSource(LIMIT_S, {})) as source:
        first = await source.start(command(SLEEP), output)
        server = psutil.Process(first.pid).parent()
        server.kill()
        await until(lambda: psutil.Process(first.pid).ppid() != server.pid)
        second = await source.start(command(SLEEP), output)
        assert isinstance(second, ForkedProcess)
        assert psutil.pid_exists(first.pid)
        os.kill(first.pid, signal.SIGKILL)
        assert await outcome(first) == (-signal.SIGKILL if adopts else None)
    assert psutil.Process(second.pid).is_running()  # its supervisor has left it
    os.kill(second.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "server",
    [
        "raise SystemExit(2)",
        "import time; time.sleep(600)",
        "import socket, sys; socket.socket(fileno=int(sys.argv[-1])).recv(9)",
    ],
)
async def test_where_a_server_fails_a_process_is_executed(command, output, server):
    with closing(ProcessSource(0.3, {})) as source:
        for _ in range(2):
            process = await source.start(command("os._exit(4)", (sys.executable, "-c", server)), output)
            assert isinstance(process, Executed)
            assert await outcome(process) == 4


async def test_several_supervisors_share_a_server(command, output, tmp_path):
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with mine, its, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        files = [its.fileno(), listener.fileno()]
        words = *command("").server, "--fork-server", ",".join(map(str, files))
        server = await asyncio.create_subprocess_exec(*words, env={**os.environ, **command("").env}, pass_fds=files)
        its.close()
        sources = [ProcessSource(LIMIT_S, {SHARED: str(tmp_path / "s")}) for _ in range(2)]
        codes = [f"os._exit({number})" for number in (5, 6)]
        started = [await source.start(command(code), output) for source, code in zip(sources, codes, strict=True)]
        assert [await outcome(one) for one in started] == [5, 6]
        for source in sources:
            source.close()
        assert server.returncode is None
    async with asyncio.timeout(LIMIT_S):
        assert await server.wait() == 0  # its owner has left


UNWATCHED = """
import errno, os, socket, sys
from mesh.process.fork_server import ForkServer
def pidfd_open(pid):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
os.pidfd_open = pidfd_open
ForkServer(socket.socket(fileno=int(sys.argv[-1]))).run()
"""


async def test_what_a_server_cannot_watch_does_not_stay(command, output):
    with closing(ProcessSource(LIMIT_S, {})) as source:
        with pytest.raises(ForkRefusedError, match="Too many open files"):
            await source.start(command(SLEEP, (sys.executable, "-c", UNWATCHED)), output)
        [server] = source._servers.values()
        assert psutil.Process(server._server.pid).children() == []


def test_a_process_with_threads_is_not_forked():
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        with mine, its, pytest.raises(UserError, match="several threads"):
            ForkServer(its).run()
    finally:
        end.set()
        thread.join()
