"""Which operating system process is, or was, a process of the mesh.

A process id alone is not enough, ids are used again: its start time tells the processes apart.
"""

import contextlib
from pathlib import Path

import psutil

SAME_START_S = 1.0  # the machine's idea of its boot time may drift a little


def pid_file(runtime: Path, process: str) -> Path:
    return runtime / f"{process}.pid"


def write_pid(runtime: Path, process: str, pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        pid_file(runtime, process).write_text(f"{pid} {psutil.Process(pid).create_time()}\n")


def remove_pid(runtime: Path, process: str) -> None:
    pid_file(runtime, process).unlink(missing_ok=True)


def find_process(runtime: Path, process: str) -> psutil.Process | None:
    """The living operating system process of a pid file."""
    try:
        pid, start = pid_file(runtime, process).read_text().split()
        found = psutil.Process(int(pid))
        is_same = abs(found.create_time() - float(start)) < SAME_START_S and found.status() != psutil.STATUS_ZOMBIE
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None
    return found if is_same else None
