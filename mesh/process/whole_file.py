"""Writes a file that others never see half of, and that a machine which loses power does not lose."""

import os
import secrets
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write it beside itself and rename it. Nobody but its user may read it. Raise `OSError`."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
