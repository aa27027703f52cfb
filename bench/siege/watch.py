"""Memory and lives of the processes of a mesh, each with the helpers that it has started."""

import resource
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

EVERY_S = 0.2
MORE_BYTES = 4 * 2**30  # that a process may write to beyond what it has at rest
RESETS_PEAK = "5"  # proc_pid_clear_refs(5)


def resident(pid: int) -> int:
    """Bytes of a process and of all that it started; 0: it is gone."""
    return own(pid) + sum(map(resident, _children(pid)))


def _children(pid: int) -> list[int]:
    """Of all its threads."""
    with suppress(OSError):
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return [int(child) for text in texts for child in text.split()]
    return []


def peak(pid: int) -> int:
    """Bytes that the process alone had resident at most since `reset_peak`; 0: nobody knows."""
    return _status_bytes(pid, "VmHWM:")


def _status_bytes(pid: int, name: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0


def limit(pid: int) -> None:
    """Let it write to so much more memory than it has now; later limits only tighten.

    At its start a process maps files of weights, each of which would count whole for each tensor.
    """
    soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
    wanted = _status_bytes(pid, "VmData:") + MORE_BYTES
    if soft == resource.RLIM_INFINITY or wanted < soft:
        resource.prlimit(pid, resource.RLIMIT_DATA, (wanted, hard))


def reset_peak(pid: int) -> None:
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text(RESETS_PEAK)


def own(pid: int) -> int:
    """Bytes of the process alone."""
    with suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


@dataclass(slots=True)
class Watch:
    """Limits processes, and samples them on a thread: attackers may hold the event loop. Use as a context manager.

    ``alone``: supervisors. What they start is watched itself, and would inherit their limit.
    """

    pids: Mapping[str, int]
    alone: Collection[str] = ()
    _before: dict[str, int] = field(default_factory=dict)
    _own_before: dict[str, int] = field(default_factory=dict)
    _most: dict[str, int] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Watch":
        for name, pid in self.pids.items():
            if name not in self.alone:
                with suppress(ProcessLookupError):
                    limit(pid)
            reset_peak(pid)
            self._before[name] = self._most[name] = self._resident(name)
            self._own_before[name] = own(pid)
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(EVERY_S):
            for name in self.pids:
                self._most[name] = max(self._most[name], self._resident(name))

    def _resident(self, name: str) -> int:
        return own(self.pids[name]) if name in self.alone else resident(self.pids[name])

    def growth(self) -> dict[str, int]:
        """Bytes at most, so far."""
        return {
            name: max(self._most[name] - self._before[name], peak(pid) - self._own_before[name], 0)
            for name, pid in self.pids.items()
        }

    def kept(self) -> dict[str, int]:
        """Bytes more than before, now."""
        return {
            name: self._resident(name) - self._before[name] for name, pid in self.pids.items() if psutil.pid_exists(pid)
        }
