"""The files of the page, read once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Final

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is served. ``etag``: of its content, in quotes."""

    content: bytes
    media_type: str
    etag: str


def page_files() -> Mapping[str, PageFile]:
    """All files of the page by their path below ``/ui/``."""
    return dict(_read(files("router.ui") / "static", PurePosixPath()))


def _read(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[str, PageFile]]:
    for entry in folder.iterdir():
        below = path / entry.name
        if entry.is_dir():
            yield from _read(entry, below)
        elif below.suffix in TYPES:
            content = entry.read_bytes()
            etag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
            yield str(below), PageFile(content, TYPES[below.suffix], etag)
