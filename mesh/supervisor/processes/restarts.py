"""Decides whether and when a process that ended is started again. Pure."""

import errno
import signal
from dataclasses import dataclass

from mesh.errors import EXIT_CONFIGURATION

HOPELESS = {  # whatever else keeps a process from being started may pass: memory, descriptors, ids, a full disk
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.E2BIG,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended: its return code as Python counts it (negative: a signal), and the last line that it said.

    ``returncode`` is None where nobody can tell it. ``is_passing``: it did not even start, for want of something that
    the machine may have again soon.
    """

    returncode: int | None
    last_line: str = ""
    is_passing: bool = False

    def __str__(self) -> str:
        how = self._how()
        return f"{how}: {self.last_line}" if self.last_line else how

    def _how(self) -> str:
        if self.returncode is None:
            return "ended"
        if self.is_passing:
            return "not started"
        if self.returncode >= 0:
            return f"exit code {self.returncode}"
        try:
            return f"killed by {signal.Signals(-self.returncode).name}"
        except ValueError:
            return f"killed by signal {-self.returncode}"


def not_started(program: str, error: OSError) -> ProcessExit:
    """A process that the system did not start."""
    is_passing = error.errno not in HOPELESS
    return ProcessExit(127, f"cannot start {program}: {error.strerror}", is_passing)


@dataclass(frozen=True, slots=True)
class Restart:
    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUpRestarting:
    """Starting again would not help."""

    reason: str


class RestartPolicy:
    """Decides when a process that died starts again. Delays grow until an incarnation was healthy for ``healthy_s``.

    A process that was never ready is given up at a configuration error, or after ``max_failed_starts`` deaths. It does
    not count as a death that the machine could not start it for the moment. A process that was ready once is always
    started again: what it died of may pass, or be mended while the rest goes on.
    """

    def __init__(
        self, first_s: float = 0.2, cap_s: float = 10.0, healthy_s: float = 30.0, max_failed_starts: int = 3
    ) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._healthy_s = healthy_s
        self._max_failed_starts = max_failed_starts
        self._was_ever_ready = False
        self._num_deaths = 0  # since the last healthy incarnation
        self._num_failed_starts = 0

    def on_exit(self, end: ProcessExit, ready_for_s: float | None) -> Restart | GiveUpRestarting:
        """Decide what follows the end of a process. ``ready_for_s`` is how long the process had been ready when it
        ended; None: it never was.
        """
        self._was_ever_ready |= ready_for_s is not None
        if end.returncode == EXIT_CONFIGURATION and not self._was_ever_ready:
            return GiveUpRestarting(end.last_line or str(end))
        if ready_for_s is not None and ready_for_s >= self._healthy_s:
            self._num_deaths = 0
        self._num_deaths += 1
        self._num_failed_starts += not end.is_passing
        if not self._was_ever_ready and self._num_failed_starts >= self._max_failed_starts:
            return GiveUpRestarting(f"died {self._num_failed_starts} times without becoming ready: {end}")
        return Restart(min(self._cap_s, self._first_s * 2 ** min(self._num_deaths - 1, 32)))
