"""Memory of the processes of a mesh, each with the helpers that it has started."""

import resource
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

EVERY_S = 0.2
MORE_BYTES = 4 * 2**30  # that a process may write to beyond what it has at rest
RESETS_PEAK = "5"  # proc_pid_clear_refs(5)


def own(pid: int, kind: str = "VmRSS:") -> int:
    """Bytes of the process alone, of this kind (man 5 proc_pid_status); 0: it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(kind):
                return int(line.split()[1]) * 1024
    return 0


def resident(pid: int) -> int:
    """Bytes of a process and of all that its threads started; 0: it is gone."""
    children: list[str] = []
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            children += path.read_text().split()
    return own(pid) + sum(resident(int(child)) for child in children)


def limit(pid: int) -> None:
    """Let it write to so much more memory than it has now; later limits only tighten.

    At its start a process maps files of weights, each of which would count whole for each tensor.
    """
    soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
    wanted = own(pid, "VmData:") + MORE_BYTES
    if soft == resource.RLIM_INFINITY or wanted < soft:
        resource.prlimit(pid, resource.RLIMIT_DATA, (wanted, hard))


class Watch:
    """Limits processes, and samples them on a thread: attackers may hold the event loop. Use as a context manager.

    ``alone``: supervisors. What they start is watched itself, and would inherit their limit.
    """

    def __init__(self, pids: Mapping[str, int], alone: Collection[str] = ()) -> None:
        self._pids = pids
        self._alone = alone
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Watch":
        for name, pid in self._pids.items():
            with suppress(OSError):  # it has ended, or is not ours
                Path(f"/proc/{pid}/clear_refs").write_text(RESETS_PEAK)
                if name not in self._alone:
                    limit(pid)
        self._own_before = {name: own(pid) for name, pid in self._pids.items()}
        self._before = self._sizes()
        self._most = dict(self._before)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(EVERY_S):
            for name, size in self._sizes().items():
                self._most[name] = max(self._most[name], size)

    def _sizes(self) -> dict[str, int]:
        return {name: own(pid) if name in self._alone else resident(pid) for name, pid in self._pids.items()}

    def growth(self) -> dict[str, int]:
        """Bytes at most, so far: of samples, or of the process's own peak."""
        return {
            name: max(self._most[name] - self._before[name], own(pid, "VmHWM:") - self._own_before[name], 0)
            for name, pid in self._pids.items()
        }

    def kept(self) -> dict[str, int]:
        """Bytes more than before, now, of those that live."""
        return {name: size - self._before[name] for name, size in self._sizes().items() if size}
