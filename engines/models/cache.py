"""The cache of fetched and converted models.

Layout: ``models/NAME-HASH/source`` holds what was fetched, ``models/NAME-HASH/model`` the prepared folder; each has a
``manifest.json``. A part is written beside its place and renamed when it is whole, so a part that exists is complete. A
lock file lets one process at a time prepare an entry; the system drops the lock of a process that dies.
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engines.models.errors import ModelError
from engines.models.progress import Progress
from mesh.process.compiled_core import user_cache

FORMAT = 3  # of prepared folders; those of another format are prepared anew, from what was fetched
_MANIFEST = "manifest.json"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)  # of everybody's room, or of the user's


class Manifest(msgspec.Struct, frozen=True):
    """What a part was made from."""

    reference: str
    format: int = FORMAT
    sha256: str | None = None  # of the source file
    source_bytes: int | None = None
    source_mtime_ns: int | None = None  # of a file that belongs to the user
    folder: str | None = None  # where the model is, when it is not in the cache itself


@dataclass(frozen=True, slots=True)
class Entry:
    """One model's place in the cache."""

    folder: Path

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def manifest(self, part: Path) -> Manifest | None:
        """Read the manifest of a part. None unless the part is there, and of this program's format if it is
        prepared.
        """
        try:
            manifest = msgspec.json.decode((part / _MANIFEST).read_bytes(), type=Manifest)
        except (OSError, msgspec.DecodeError):
            return None
        return manifest if part == self.source or manifest.format == FORMAT else None

    def prepared(self) -> Path | None:
        """The folder with the prepared model."""
        manifest = self.manifest(self.model)
        if manifest is None:
            return None
        if manifest.folder is None:
            return self.model
        elsewhere = Path(manifest.folder)
        return elsewhere if elsewhere.is_dir() else None

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Hold the entry. Waits while another process prepares it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress("waiting for another process that prepares this model")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def staged(self, part: Path) -> Iterator[Path]:
        """An empty folder that takes the place of ``part`` when the block ends well. Hold the lock.

        Raises `ModelError` where the block finds the disk full.
        """
        partial = self.folder / f"{part.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            yield partial
            shutil.rmtree(part, ignore_errors=True)
            partial.rename(part)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            raise ModelError(
                f"{self.folder}: the disk is full; make room there, or set MESHSERVE_CACHE to a folder on another disk"
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def reference(self) -> str | None:
        manifest = self.manifest(self.model) or self.manifest(self.source)
        return manifest.reference if manifest else None

    def size_bytes(self) -> int:
        """Return the size of the entry's files, wherever the model is."""
        elsewhere = self.prepared()
        folders = {self.folder} if elsewhere is None or elsewhere == self.model else {self.folder, elsewhere}
        return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())

    def remove(self) -> None:
        """Delete what the cache holds. Raises `ModelError` while another process prepares the entry."""
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ModelError(
                    f"{self.reference()}: another process is preparing it; try again when it is done"
                ) from error
            shutil.rmtree(self.folder)


class Cache:
    """Entries under one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of_user(cls, environment: Mapping[str, str] = os.environ) -> "Cache":
        """Return the user's cache. ``$MESHSERVE_CACHE``, or ``~/.cache/meshserve``."""
        return cls(user_cache(environment))

    def entry(self, reference: str) -> Entry:
        name = re.sub(r"[^\w.-]+", "-", reference.rpartition("/")[2].removesuffix(".gguf"))
        return Entry(self.root / "models" / f"{name}-{hashlib.sha256(reference.encode()).hexdigest()[:12]}")

    def entries(self) -> list[Entry]:
        """Return the entries that hold something whole, by reference."""
        entries = [Entry(folder) for folder in (self.root / "models").glob("*")]
        return sorted((entry for entry in entries if entry.reference()), key=lambda entry: str(entry.reference()))


def write_manifest(part: Path, manifest: Manifest) -> None:
    (part / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
