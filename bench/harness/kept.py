"""Keeps what came of runs in files, so that a bench which was interrupted goes on where it was."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

Case = TypeVar("Case")
Result = TypeVar("Result")


def kept(folder: Path, case: Case, work: Callable[[Case], Result], kind: type[Result]) -> Result:
    """Return what is kept in the folder of this very case, or do the work and keep what comes of it.

    Processes may share the folder. What is kept says nothing of the program: empty the folder when that has changed.
    """
    told = _told(case)
    path = _path(folder, told)
    if path.exists():
        return msgspec.convert(msgspec.json.decode(path.read_bytes())["result"], kind)
    result = work(case)
    folder.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(f".{os.getpid()}")
    written.write_bytes(msgspec.json.encode({"case": msgspec.Raw(told), "result": result}))
    written.replace(path)  # whole or not at all
    return result


def is_kept(folder: Path, case: object) -> bool:
    """Return whether there is a result of this very case in the folder."""
    return _path(folder, _told(case)).exists()


def _told(case: object) -> bytes:
    return msgspec.json.encode(case, enc_hook=str)


def _path(folder: Path, told: bytes) -> Path:
    return folder / f"{hashlib.sha256(told).hexdigest()[:24]}.json"
