"""Keeps what a process prints: one file for each incarnation. The process goes on whatever becomes of the file."""

import os
from contextlib import suppress
from pathlib import Path
from typing import IO

import structlog

LAST_LINE_BYTES = 4096

log = structlog.get_logger()


def open_output(path: Path) -> IO[bytes]:
    """Open an empty file. The file beside it keeps what the previous incarnation printed. Raise `OSError`.

    Where no file can be made, what is printed is lost.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.replace(path.with_suffix(".out.1"))
        return path.open("w+b")
    except OSError as error:
        log.warning("output is not kept", path=str(path), reason=error.strerror)
        return open(os.devnull, "w+b")


def read_last_line(output: IO[bytes]) -> str:
    """Return the last line of a file that may have no name any more; empty if it cannot be read."""
    try:
        size = os.fstat(output.fileno()).st_size
        found = os.pread(output.fileno(), LAST_LINE_BYTES, max(0, size - LAST_LINE_BYTES))
    except OSError:
        return ""
    lines = found.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def open_found(path: Path) -> IO[bytes]:
    """The output of a process that another supervisor started. Raise `OSError`."""
    try:
        return path.open("rb")
    except OSError:
        return open(os.devnull, "rb")
