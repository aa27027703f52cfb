"""One supervisor a mesh and host: a locked file that says who it is. The lock ends with its holder, however it ends.

Two bytes of the file have locks. The first is the holder's: whoever asks who runs the mesh looks at that lock and takes
none, so no question is ever in anybody's way. The second is taken while a new holder's file, written and locked before,
takes the place of the old one: a file that is held always says by whom. A holder whose file is removed makes it again.
"""

import fcntl
import os
import secrets
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import msgspec

from mesh.errors import UserError
from mesh.process.lazy_log import LazyLog

HOLDER, CLAIM = 0, 1  # bytes of the file
LOOK_S = 0.5
MOST_TRIES = 100  # others may put a file of theirs there meanwhile, and end

_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid

log = LazyLog()


class Holder(msgspec.Struct, frozen=True):
    """The supervisor that runs a mesh on this host."""

    pid: int
    topology: str


class SupervisorLock:
    """Holds the lock until `release`. A thread looks whether the file is still there."""

    def __init__(self, file: Path, holder: Holder, descriptor: int) -> None:
        self._file = file
        self._holder = holder
        self._descriptor = descriptor
        self._released = Event()
        self._keeper = Thread(target=self._keep_on, name="lock", daemon=True)
        self._keeper.start()

    def __repr__(self) -> str:
        return f"<SupervisorLock {self._file} {self._holder}>"

    def release(self) -> None:
        self._released.set()
        self._keeper.join()
        os.close(self._descriptor)

    def _keep_on(self) -> None:
        while not self._released.wait(LOOK_S):
            self.keep()

    def keep(self) -> None:
        """Make the file again if somebody removed it."""
        with suppress(OSError):  # a full disk, for one: the next look tries again
            if not self._file.exists():
                descriptor = _place(self._file, self._holder, os.link)
                os.close(self._descriptor)
                self._descriptor = descriptor
                log.warning("the lock's file was removed and is there again", file=str(self._file))


def lock_file(runtime: Path, host: str) -> Path:
    return runtime / f"supervisor-{host}.lock"


def acquire(runtime: Path, host: str, topology: Path) -> SupervisorLock:
    """Raise `UserError` if the mesh runs already, or the file cannot be written."""
    file = lock_file(runtime, host)
    mine = Holder(os.getpid(), str(topology))
    try:
        for _ in range(MOST_TRIES):
            descriptor = _take_place(file, mine)
            if descriptor is not None:
                return SupervisorLock(file, mine, descriptor)
    except OSError as error:
        raise UserError(
            f"{file}: cannot be written ({error.strerror}); set MESHSERVE_RUNTIME_DIR to another folder"
        ) from None
    raise UserError(_taken(file))


def _take_place(file: Path, mine: Holder) -> int | None:
    """None: another file came there meanwhile. Raise `UserError` if the one that is there is held."""
    found = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not _lock(found, CLAIM) or _is_locked(found, HOLDER):
            raise UserError(_taken(file))
        return _place(file, mine, os.replace) if _is_at(file, found) else None
    finally:
        os.close(found)


def _place(file: Path, mine: Holder, put: Callable[[Path, Path], None]) -> int:
    """Write and lock a new file, then give it its name; its descriptor."""
    new = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, HOLDER)
        os.write(descriptor, msgspec.json.encode(mine) + b"\n")
        put(new, file)
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        new.unlink(missing_ok=True)
    return descriptor


def holder(runtime: Path, host: str) -> Holder | None:
    """Return who runs the mesh on this host; None: nobody does. Takes no lock."""
    return _holder(lock_file(runtime, host))


def _holder(file: Path) -> Holder | None:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return msgspec.json.decode(os.read(descriptor, 2**16), type=Holder) if _is_locked(descriptor, HOLDER) else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _lock(descriptor: int, byte: int) -> bool:
    """Of the open file, not of the process: it ends when the last descriptor of it is closed."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_locked(descriptor: int, byte: int) -> bool:
    question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, question))[0]
    return kind != fcntl.F_UNLCK


def _is_at(file: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), file.stat(follow_symlinks=False))
    return False


def refuse(runtime: Path, host: str) -> UserError:
    """Says that the mesh runs already."""
    return UserError(_taken(lock_file(runtime, host)))


def _taken(file: Path) -> str:
    found = _holder(file)
    who = f" (process {found.pid}, {found.topology})" if found else ""
    return f"mesh {file.parent.name!r} is already running{who}; stop it with `mesh down` or give this one a [mesh] name"
