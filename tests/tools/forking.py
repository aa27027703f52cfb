"""Runs tests in processes that are forked after the collection: what was imported and collected is theirs, too.

Files whose tests wait for other processes are in one queue, files that compute in another. Half of the workers begin
with each. Those that compute use what the others leave idle, at a lower priority: whoever waits has deadlines.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from _pytest._io import TerminalWriter

from tests.tools.orphans import LOOK_S, Orphans, forget_adopting
from tests.tools.warm import fork_server

NICE = 5  # of workers that begin with files that compute
NUMBER_BYTES = 4
END_S = 60.0  # that a worker which is stopped has to end what its tests have started
INTERRUPTS = frozenset([signal.SIGINT, signal.SIGTERM])

File = Sequence[pytest.Item]


class Queue:
    """Files that processes take, each of them once: as many as a pipe holds numbers, 16,384."""

    def __init__(self, files: Sequence[File]) -> None:
        self._files = files
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        os.write(write, b"".join(number.to_bytes(NUMBER_BYTES, "little") for number in range(len(files))))
        os.close(write)

    def __iter__(self) -> Iterator[File]:
        while taken := os.read(self._read, NUMBER_BYTES):
            yield self._files[int.from_bytes(taken, "little")]


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """What is forked meanwhile is known when an interrupt comes through, and does not go on as the first process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Voice:
    """Stands for the terminal's reporter in a worker: pytest-timeout writes to it where all threads are."""

    def __init__(self) -> None:
        self._tw = TerminalWriter(sys.__stderr__)


class Sender:
    """The plugin of a worker that tells the first process what becomes of tests."""

    def __init__(self, session: pytest.Session, connection: "Connection[Any, Any]") -> None:
        self._session, self._connection = session, connection

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        self._send("pytest_runtest_logstart", nodeid=nodeid, location=location)

    def pytest_runtest_logfinish(self, nodeid: str, location: object) -> None:
        self._send("pytest_runtest_logfinish", nodeid=nodeid, location=location)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._session.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self._send("pytest_runtest_logreport", report=data)

    def _send(self, hook: str, **arguments: object) -> None:
        try:
            self._connection.send((hook, arguments))
        except BrokenPipeError:
            self._session.shouldstop = "the first process has ended"


class Worker:
    """A process that runs some tests of a file, and then the files of queues, seen from the first process."""

    def __init__(self, session: pytest.Session, first: File, queues: Sequence[Queue], nice: int) -> None:
        self.session, self.queues, self.nice = session, queues, nice
        self.running = ""  # a test
        self.connection, theirs = Pipe(duplex=False)
        self.process = ForkProcess(target=_work, args=(session, theirs, first, queues, nice))
        self.process.start()
        theirs.close()
        self.end = os.pidfd_open(self.pid)  # a process that a test has left may keep the connection open

    def listen(self) -> bool:
        """Pass on what the worker says next. Returns whether it goes on."""
        try:
            if not self.connection.poll():
                return False  # it is its end that was heard
            hook, arguments = self.connection.recv()
        except EOFError:
            return False
        if hook == "pytest_runtest_logreport":
            config = self.session.config
            report = config.hook.pytest_report_from_serializable(config=config, data=arguments["report"])
            self.session.ihook.pytest_runtest_logreport(report=report)
        else:
            self.running = arguments["nodeid"] if hook == "pytest_runtest_logstart" else ""
            getattr(self.session.ihook, hook)(**arguments)
        return True

    def successor(self) -> "Worker | None":
        """Return who goes on after a test that has ended the whole process, and say of the test that it failed."""
        self.close(END_S)
        if not self.running:
            return None
        item = next(item for item in self.session.items if item.nodeid == self.running)
        self.session.ihook.pytest_runtest_logreport(report=_ended(item, self.process.exitcode))
        self.session.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        file = [other for other in self.session.items if other.path == item.path]
        return Worker(self.session, file[file.index(item) + 1 :], self.queues, self.nice)

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    def stop(self) -> None:
        self.connection.close()
        if self.process.is_alive():
            os.kill(self.pid, signal.SIGINT)

    def close(self, wait_s: float) -> None:
        """Wait for its end so long, and kill it then."""
        self.connection.close()
        wait([self.end], wait_s)
        self.process.kill()
        self.process.join()
        os.close(self.end)


def _ended(item: pytest.Item, code: int | None) -> pytest.TestReport:
    why = f"its process ended with {code}"
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")


def _work(
    session: pytest.Session, connection: "Connection[Any, Any]", first: File, queues: Sequence[Queue], nice: int
) -> None:
    item = None
    try:
        forget_adopting()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
        os.nice(nice)
        _become_worker(session, connection)
        for file in chain([first], chain.from_iterable(queues)):
            for item, following in zip(file, [*file[1:], session], strict=False):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    return
    finally:
        signal.signal(signal.SIGINT, lambda *_: None)  # both a terminal and the first process may say it
        if item is not None:
            _end_shared(item)


def _end_shared(last: pytest.Item) -> None:
    """End what files share. What fails there is said of the last test."""
    end = pytest.CallInfo.from_call(lambda: last.session._setupstate.teardown_exact(None), "teardown")
    last.ihook.pytest_runtest_logreport(report=last.ihook.pytest_runtest_makereport(item=last, call=end))


def _become_worker(session: pytest.Session, connection: "Connection[Any, Any]") -> None:
    config = session.config
    signal.signal(signal.SIGINT, signal.default_int_handler)
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # to files of which all forks would share the position
    capture.start_global_capturing()
    capture.suspend_global_capture()  # between tests it is
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(Voice(), "terminalreporter")
    config.pluginmanager.register(Sender(session, connection))
    folders = config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.mktemp(f"w{os.getpid()}", numbered=False)


class Forks:
    """The plugin of the first process.

    ``waits`` tells of a test whether its file mostly waits. ``left`` is told of each process that a test has left and
    that has ended: the file of the test, and CPU seconds.
    """

    def __init__(
        self, num_workers: int, waits: Callable[[pytest.Item], bool], left: Callable[[str, float], None]
    ) -> None:
        self._num_workers, self._waits, self._num_ended = num_workers, waits, 0
        self._left, self._orphans = left, Orphans()

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest says what there is to say
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        files: dict[Path, list[pytest.Item]] = {}
        for item in session.items:
            files.setdefault(item.path, []).append(item)
        waiting = Queue([tests for tests in files.values() if self._waits(tests[0])])
        computing = Queue([tests for tests in files.values() if not self._waits(tests[0])])
        orders = [((waiting, computing), 0), ((computing, waiting), NICE)]
        workers: list[Worker] = []
        socket = session.config._tmp_path_factory.getbasetemp() / "forks"  # type: ignore[attr-defined]
        with fork_server(socket, self._left), self._orphans.adopted():
            try:
                with _uninterrupted():
                    workers.extend(
                        Worker(session, (), *orders[number % len(orders)]) for number in range(self._num_workers)
                    )
                self._follow(session, workers)
            finally:
                self._end(workers)
        if missing := len(session.items) - self._num_ended:
            raise session.Interrupted(f"{missing} tests were not run: a worker has ended")
        return True

    def pytest_runtest_logfinish(self) -> None:
        self._num_ended += 1

    def _follow(self, session: pytest.Session, workers: list[Worker]) -> None:
        """Pass on what workers say, until they have ended or enough tests have failed."""
        looked_at = monotonic()
        while workers:
            heard = [*(worker.connection for worker in workers), *(worker.end for worker in workers)]
            ready = wait([*heard, self._orphans.ended], LOOK_S)
            self._reap(workers)
            if monotonic() >= looked_at + LOOK_S:
                looked_at = monotonic()
                self._orphans.look([worker.pid for worker in workers])
            for worker in [worker for worker in workers if worker.connection in ready or worker.end in ready]:
                if not worker.listen():
                    with _uninterrupted():
                        workers += filter(None, [worker.successor()])
                        workers.remove(worker)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)

    def _end(self, workers: Sequence[Worker]) -> None:
        """Stop those that still run, also when this process was interrupted, and wait for all of them together."""
        for worker in workers:
            worker.stop()
        end, alive = monotonic() + END_S, {worker.end for worker in workers}
        while alive and (left_s := end - monotonic()) > 0:
            alive -= {*wait([*alive, self._orphans.ended], left_s)}
            self._reap(workers)
        for worker in workers:
            worker.close(0.0)

    def _reap(self, workers: Sequence[Worker]) -> None:
        """Whoever ends what a test has started waits until it is gone, which it is when it was waited for here."""
        for file, cost_s in self._orphans.reap([worker.pid for worker in workers]):
            self._left(file, cost_s)
