"""One supervisor a mesh and host: a locked file that says who it is. The lock ends with its holder, however it ends."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mesh.errors import UserError


class Holder(msgspec.Struct, frozen=True):
    """The supervisor that runs a mesh on this host."""

    pid: int
    topology: str


@dataclass(frozen=True, slots=True)
class SupervisorLock:
    """Holds the lock until `release`."""

    descriptor: int

    def release(self) -> None:
        os.close(self.descriptor)


def lock_file(runtime: Path, host: str) -> Path:
    return runtime / f"supervisor-{host}.lock"


def acquire(runtime: Path, host: str, topology: Path) -> SupervisorLock:
    """Raise `UserError` if the mesh runs already."""
    file = lock_file(runtime, host)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(_taken(file)) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(Holder(os.getpid(), str(topology))) + b"\n", 0)
    return SupervisorLock(descriptor)


def holder(runtime: Path, host: str) -> Holder | None:
    """Who runs the mesh on this host; None: nobody does."""
    try:
        descriptor = os.open(lock_file(runtime, host), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(lock_file(runtime, host))
    else:
        return None
    finally:
        os.close(descriptor)


def _read(file: Path) -> Holder | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def _taken(file: Path) -> str:
    found = _read(file)
    who = f" (process {found.pid}, {found.topology})" if found else ""
    return f"mesh {file.parent.name!r} is already running{who}; stop it with `mesh down` or give this one a [mesh] name"
