"""Records which operating system process is, or was, a process of the mesh, for the next supervisor.

A process id alone is not enough, ids are used again. The machine's boot and the clock tick at which the process
started tell processes apart, and do not change when somebody sets the clock.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mesh.process.lazy_log import LazyLog
from mesh.wire.frames import WIRE_VERSION

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DEAD = ("Z", "X", "x")  # states of a process that has ended, in /proc/PID/stat

log = LazyLog()


class PidRecord(msgspec.Struct, frozen=True):
    """One incarnation of a process.

    ``digest`` is that of all that it was started with, ``topology`` that of the file's text alone.
    ``is_leaving``: it was asked to end.
    """

    pid: int
    started: str
    process: str
    kind: str
    host: str
    digest: str
    topology: str = ""
    wire: str = WIRE_VERSION.decode()
    is_leaving: bool = False


def pid_file(runtime: Path, process: str) -> Path:
    return runtime / f"{process}.pid"


def start_of(pid: int) -> str | None:
    """Tells a process from all others that had, or will have, its id. None: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = BOOT_ID.read_text().strip()
    except OSError:
        return None
    return None if fields[0] in DEAD else f"{boot}/{fields[19]}"


def is_alive(record: PidRecord) -> bool:
    return start_of(record.pid) == record.started


def read_record(runtime: Path, process: str) -> PidRecord | None:
    """Return what is known of a process, be it alive or not; None: nothing, or its file is damaged."""
    try:
        return msgspec.json.decode(pid_file(runtime, process).read_bytes(), type=PidRecord)
    except (OSError, ValueError):
        return None


def find_process(runtime: Path, process: str) -> PidRecord | None:
    """The process of a pid file, if it is alive."""
    record = read_record(runtime, process)
    return record if record is not None and is_alive(record) else None


def find_processes(runtime: Path) -> Iterator[PidRecord]:
    """All that are alive."""
    for file in sorted(runtime.glob("*.pid")):
        if (record := find_process(runtime, file.stem)) is not None and record.process == file.stem:
            yield record


def remove_pid(runtime: Path, process: str) -> None:
    try:
        pid_file(runtime, process).unlink(missing_ok=True)
    except OSError as error:
        log.warning("pid file not removed", child=process, reason=error.strerror)


class PidFile:
    """Keeps the file of one incarnation. A disk that is full, or a folder that went away, is tried again."""

    def __init__(self, runtime: Path, record: PidRecord) -> None:
        self.record = record
        self.directory = runtime
        self._path = pid_file(runtime, record.process)
        self._has_complained = False

    def __repr__(self) -> str:
        return f"<PidFile {self._path} of {self.record.pid}>"

    def write(self) -> None:
        """Whole or not at all, whoever reads it meanwhile."""
        draft = self._path.with_suffix(".pid.new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(self.record) + b"\n")
            os.replace(draft, self._path)
        except OSError as error:
            if not self._has_complained:
                log.warning("pid file not written", child=self.record.process, reason=error.strerror)
            self._has_complained = True
        else:
            self._has_complained = False

    def keep(self) -> None:
        """Make it again if somebody removed or damaged it, or it could not be written."""
        if self._has_complained or read_record(self.directory, self.record.process) != self.record:
            self.write()

    def leaving(self) -> None:
        """The process is asked to end: whoever finds it must not ask again, which would end it at once."""
        self.record = msgspec.structs.replace(self.record, is_leaving=True)
        self.write()
