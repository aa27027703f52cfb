"""A folder of block files that several processes share, bounded in bytes: who writes makes room first.

A file is written under another name and renamed when it is whole, so a file that exists is complete unless the machine
died; its checksum tells. Who uses a file touches it, and who needs room removes those that were touched the longest
ago. The file ``usage`` counts the bytes in the folder; its lock lets one process write at a time. Whenever the folder
is full, a look at all files makes the count true again, whatever a process that died had counted.

A folder that was removed is made anew by who writes next, but not where the file system was that is mounted no more.
"""

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from kvtransfer.protocol import Buffer
from mesh.errors import UserError

UNIT: Final = 4096  # bytes: what a file takes is a multiple of them
SPARE: Final = 16  # when a folder is full, one such part of it is freed at a time: to look at all files takes long
LOOK_S: Final = 5.0  # between two looks for what other processes wrote
MAKE_AGAIN_S: Final = 60.0  # between two times that a folder is made anew
PARTIAL: Final = ".part-"
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
MARK: Final = "encrypted"  # a file that says that all others are, and by which key
COUNT: Final = struct.Struct("<Q")

log = structlog.get_logger()


class BlockFile(NamedTuple):
    """A whole file: what it is called, and its parts, in order."""

    name: str
    parts: Sequence[Buffer]

    @property
    def num_bytes(self) -> int:
        return taken_bytes(sum([memoryview(part).nbytes for part in self.parts]))


class Written(NamedTuple):
    """What became of a batch of files. ``why``: there were faults; the last one's reason."""

    num_written: int
    num_bytes: int
    num_evicted: int
    num_faults: int
    why: str = ""


class TierFolder:
    """Holds up to ``capacity_bytes``. Every method may be called in any thread, and but for `has` may take long."""

    def __init__(self, path: Path, capacity_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Raise `UserError` if the folder cannot be made or read, or others may write there."""
        self.path: Final = path
        self.capacity_bytes: Final = capacity_bytes
        _make_private(path)
        self.used_bytes = 0  # by all, as it was when this process wrote last
        self._clock = clock
        self._device = path.parent.stat().st_dev
        self._made_at = -inf
        self._is_refused = False
        self._num_parts = 0

    def __repr__(self) -> str:
        return f"<TierFolder {self.path} {self.used_bytes} of {self.capacity_bytes} bytes>"

    def has(self, name: str) -> bool:
        """Return whether there is such a file now."""
        return os.path.exists(self._place(name))

    def read(self, name: str) -> bytes | None:
        """Return what is in a file; None: it is not there. Raise OSError."""
        try:
            self._check_private()
            with open(self._place(name), "rb", buffering=0) as file:
                return file.readall()
        except FileNotFoundError:
            return None

    def touch(self, name: str, used_ns: int) -> None:
        """Note when a file was used, if it is there and the file system lets that be noted. ``used_ns``: nanoseconds
        since the epoch; of two files, the one with the smaller number goes first.
        """
        with suppress(OSError):
            os.utime(self._place(name), ns=(used_ns, used_ns))

    def remove(self, name: str) -> None:
        """Remove a file that is of no use, if it is there."""
        with suppress(OSError):
            os.unlink(self._place(name))

    def write(self, files: Sequence[BlockFile]) -> Written:
        """Write those that are not there. What cannot be written is a fault, and is left out. One process writes at a
        time.
        """
        try:
            try:
                self._check_private()
            except FileNotFoundError:
                self._make_again()
            with self._locked() as fd:
                why = self._refusal()
                self._is_refused = bool(why)
                return Written(0, 0, 0, len(files), why) if why else self._write_counted(files, fd)
        except OSError as error:
            return Written(0, 0, 0, len(files), _reason(error))
        except UserError as error:
            return Written(0, 0, 0, len(files), str(error))

    def _check_private(self) -> None:
        """Raise OSError if somebody has put another folder into the place of this one: where it was removed, others may
        be able to.
        """
        if not _is_private(self.path.lstat()):
            raise PermissionError(errno.EPERM, "others may write there")

    def _make_again(self) -> None:
        """Make the folder anew, unless that was done a moment ago. Raise OSError or `UserError`."""
        now = self._clock()
        if self._is_refused or now < self._made_at + MAKE_AGAIN_S or self.path.parent.stat().st_dev != self._device:
            return
        self._made_at = now
        _make_private(self.path)
        log.info("made a folder of [kv_tiers] anew, as it was gone", folder=str(self.path))
        self._begin()

    def _begin(self) -> None:
        """Do what is to be done in a folder before anything is written. Raise `UserError`."""

    def _missing(self, files: Sequence[BlockFile]) -> list[BlockFile]:
        """Return those that are not there, whoever wrote the others."""
        return [file for file in files if not os.path.exists(self._place(file.name))]

    def _refusal(self) -> str:
        """Say why nothing is to be written there any more; empty: it may be. Raise OSError."""
        return ""

    def _write_counted(self, files: Sequence[BlockFile], usage: int) -> Written:
        new = self._missing(files)
        num_bytes = sum([file.num_bytes for file in new])
        if num_bytes > self.capacity_bytes:
            return Written(0, 0, 0, len(new), "they are larger than the tier")
        num_evicted = self._make_room(num_bytes, usage)
        os.pwrite(usage, COUNT.pack(self.used_bytes + num_bytes), 0)  # should the process die: rather too much
        written, error = self._write_all(new)
        num_bytes = sum([file.num_bytes for file in written])
        self.used_bytes += num_bytes
        if error is not None and error.errno in FULL:  # before the bound is reached: let what comes next find room
            used, wanted = self.used_bytes, sum([file.num_bytes for file in new]) - num_bytes
            self.used_bytes, num_gone = self._evict(max(used // 2, used - wanted), used)
            num_evicted += num_gone
        os.pwrite(usage, COUNT.pack(self.used_bytes), 0)
        return Written(len(written), num_bytes, num_evicted, len(new) - len(written), _reason(error))

    def _write_all(self, files: Sequence[BlockFile]) -> tuple[list[BlockFile], OSError | None]:
        """Return those that could be written, and what became of the last that could not. Stop where the device is
        full.
        """
        written, last = list[BlockFile](), None
        for file in files:
            try:
                self._write(file)
            except OSError as error:
                last = error
                if error.errno in FULL:
                    break
            else:
                written.append(file)
        return written, last

    def _write(self, file: BlockFile) -> None:
        """Raise OSError."""
        place = self._place(file.name)
        self._num_parts += 1
        partial = f"{self.path}/{PARTIAL}{os.getpid()}-{self._num_parts}"
        try:
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _write_parts(fd, file.parts)
            finally:
                os.close(fd)
            with suppress(FileExistsError):
                os.mkdir(os.path.dirname(place), 0o700)
            os.rename(partial, place)
        except OSError:
            with suppress(OSError):
                os.unlink(partial)
            raise

    def _place(self, name: str) -> str:
        return f"{self.path}/{name[:2]}/{name}"

    # --- the bound ----------------------------------------------------------------------------------------------------

    def _make_room(self, num_bytes: int, usage: int) -> int:
        """Let so many bytes be free; return how many files went for it. Raise OSError."""
        count = os.pread(usage, COUNT.size, 0)
        self.used_bytes = COUNT.unpack(count)[0] if len(count) == COUNT.size else self.capacity_bytes
        if self.used_bytes + num_bytes <= self.capacity_bytes:
            return 0
        self.used_bytes, num_evicted = self._evict(self.capacity_bytes - num_bytes, self.capacity_bytes)
        return num_evicted

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The system drops the lock of a process that dies."""
        fd = os.open(self.path / "usage", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)

    def _evict(self, most: int, room: int) -> tuple[int, int]:
        """Count all files. If they take more than ``most`` bytes, remove the longest unused ones until a spare part of
        ``room`` is free, too. Return what is taken then, and how many went.
        """
        files = sorted(self._files())
        used, num_evicted = sum([num_bytes for _, num_bytes, _ in files]), 0
        if used <= most:
            return used, 0
        for _, num_bytes, place in files:
            if used <= max(0, most - room // SPARE):
                break
            with suppress(FileNotFoundError):
                os.unlink(place)
            used -= num_bytes
            num_evicted += 1
        return used, num_evicted

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """When each was used last, what it takes, and where it is. What was never finished is removed: who asks has the
        lock, so nobody is writing.
        """
        for entry in _entries(self.path):
            if entry.is_dir(follow_symlinks=False):
                for file in _entries(entry.path):
                    with suppress(FileNotFoundError):
                        status = file.stat(follow_symlinks=False)
                        yield status.st_mtime_ns, taken_bytes(status.st_size), file.path
            elif entry.name.startswith(PARTIAL):
                with suppress(FileNotFoundError):
                    os.unlink(entry.path)


class ListedFolder(TierFolder):
    """A folder on a disk, which may be slow to say what it holds: `has` asks a list. The list has what this process
    wrote, and what others wrote before this process looked for that last, which it does now and then when it writes.

    All its files are written with one key, or none with any. The last process that began decides: others that have
    another one write nothing any more.
    """

    key_id = ""  # of the key; empty: files are not encrypted

    def __init__(self, path: Path, capacity_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(path, capacity_bytes, clock)
        self._names: set[str] = set()
        self._looks_at = 0.0
        self._begin()
        self._look()

    def has(self, name: str) -> bool:
        return name in self._names

    def read(self, name: str) -> bytes | None:
        content = super().read(name)
        if content is None:
            self._names.discard(name)
        return content

    def touch(self, name: str, used_ns: int) -> None:
        if name in self._names:
            super().touch(name, used_ns)

    def remove(self, name: str) -> None:
        super().remove(name)
        self._names.discard(name)

    def write(self, files: Sequence[BlockFile]) -> Written:
        written = super().write(files)
        if written.num_evicted or self._clock() >= self._looks_at:
            self._look()
        return written

    def _make_again(self) -> None:
        self._looks_at = 0.0  # for what is listed is gone
        super()._make_again()

    def _missing(self, files: Sequence[BlockFile]) -> list[BlockFile]:
        missing = super()._missing(files)
        self._names |= {file.name for file in files} - {file.name for file in missing}
        return missing

    def _write(self, file: BlockFile) -> None:
        super()._write(file)
        self._names.add(file.name)

    def _begin(self) -> None:
        """Nothing that is written here is encrypted."""
        with suppress(OSError):
            self._keep_own()

    def _refusal(self) -> str:
        if self._marked() == self.key_id:
            return ""
        return "another process uses the folder with another key, or with none; restart those that have the old one"

    def _marked(self) -> str:
        """Return the `key_id` of what is there. Raise OSError."""
        mark = self.path / MARK
        return mark.read_text() if mark.exists() else ""

    def _keep_own(self) -> None:
        """Remove what the folder has, unless it was written with this key. Raise OSError."""
        mark = self.path / MARK
        with self._locked() as usage:
            if self._marked() == self.key_id:
                return
            places = [place for _, _, place in self._files()]
            for place in places:
                with suppress(FileNotFoundError):
                    os.unlink(place)
            os.pwrite(usage, COUNT.pack(0), 0)
            if self.key_id:
                mark.touch(0o600)
                mark.write_text(self.key_id)
            else:
                mark.unlink()
        if places:
            log.info("removed KV blocks that were written with another key, or without one", folder=str(self.path))

    def _look(self) -> None:
        """Read the names of all files."""
        try:
            folders = [entry.path for entry in _entries(self.path) if entry.is_dir(follow_symlinks=False)]
            self._names = {file.name for folder in folders for file in _entries(folder)}
        except OSError:
            self._names = set()
        self._looks_at = self._clock() + LOOK_S


def taken_bytes(num_bytes: int) -> int:
    """Return what a file of that length counts for."""
    return -(-num_bytes // UNIT) * UNIT


def _reason(error: OSError | None) -> str:
    return "" if error is None else error.strerror or str(error)


def _entries(path: str | Path) -> Iterable["os.DirEntry[str]"]:
    with os.scandir(path) as entries:
        return list(entries)


def _write_parts(fd: int, parts: Sequence[Buffer]) -> None:
    """Raise OSError, as where the device is full."""
    views = [memoryview(part).cast("B") for part in parts]
    written = os.writev(fd, views)
    for view in views:
        rest = view[min(written, len(view)) :]
        written -= len(view) - len(rest)
        while rest:
            rest = rest[os.write(fd, rest) :]


def _make_private(path: Path) -> None:
    """Make a folder in which nobody else can put files: blocks are computed with as they are."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path}: cannot be a folder of [kv_tiers]: a file is in its place") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be a folder of [kv_tiers]: {error.strerror}") from None
    if not _is_private(status):
        raise UserError(f"{path}: others may write there; name a folder of your own in [kv_tiers]")


def _is_private(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
