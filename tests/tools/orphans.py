"""Processes that tests start and leave, such as those of ``mesh up --detach``, and the CPU time that they take.

Such a process goes to the next of its ancestors that adopts, which is the first process of a run. That one waits
for it, and hears from the kernel what it and those that it has waited for have used.
"""

import ctypes
import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

import psutil

PR_SET_CHILD_SUBREAPER = 36
LOOK_S = 1.0  # after which whoever was adopted is asked for its test
UNKNOWN = "(left by tests, and ended within a second)"


class Orphans:
    """Those that this process has adopted. ``ended`` is readable when a child may have ended."""

    def __init__(self) -> None:
        self.ended, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._files: dict[int, str] = {}  # of tests, by the id of the process

    @contextmanager
    def adopted(self) -> Iterator[None]:
        """Adopt meanwhile. To be called in the main thread."""
        adopt(is_on=True)
        handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            signal.signal(signal.SIGCHLD, handler)
            adopt(is_on=False)

    def look(self, own: Collection[int]) -> None:
        """Ask who was adopted for its test, which it has in its environment. ``own`` are children that were not."""
        for child in psutil.Process().children():
            if child.pid not in own and child.pid not in self._files:
                with suppress(psutil.Error):
                    test = child.environ().get("PYTEST_CURRENT_TEST", UNKNOWN)
                    self._files[child.pid] = test.partition("::")[0]

    def reap(self, own: Collection[int]) -> Iterator[tuple[str, float]]:
        """Wait for those that have ended. Yields the file whose test started it and its CPU seconds, for each."""
        with suppress(BlockingIOError):
            os.read(self.ended, 4096)
        with suppress(ChildProcessError):  # there are none
            while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and dead.si_pid not in own:
                _, _, usage = os.wait4(dead.si_pid, 0)
                yield self._files.pop(dead.si_pid, UNKNOWN), usage.ru_utime + usage.ru_stime


def forget_adopting() -> None:
    """Undo in a fork what the process that adopts has set."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def adopt(*, is_on: bool) -> None:
    """Be given the processes that those below this one leave, or not any more."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot adopt what tests leave")
