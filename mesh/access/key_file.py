"""The file of access keys: read whole, written anew beside itself and renamed, so that nobody ever sees half of it."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from mesh.access.keys import AccessKey
from mesh.access.private_file import is_private
from mesh.errors import UserError
from mesh.process.whole_file import write_whole

MAX_BYTES = 64 * 2**20
MAX_KEYS = 100_000


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    keys: Annotated[tuple[AccessKey, ...], msgspec.Meta(max_length=MAX_KEYS)] = ()


def read_keys(path: Path) -> tuple[AccessKey, ...]:
    """Raise `FileNotFoundError` if there is none, `UserError` if it is broken or others can read or change it."""
    try:
        with path.open("rb") as file:
            if not is_private(os.fstat(file.fileno())):
                raise UserError(f"{path}: others can read the access keys; run `chmod 600 {path}`")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        keys = msgspec.json.decode(data, type=_Content).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is no file of access keys: {error}") from None
    if len({key.id for key in keys}) < len(keys) or len({key.name for key in keys}) < len(keys):
        raise UserError(f"{path}: two access keys have one name or id; take one of them out")
    return keys


def change_keys(path: Path, change: Callable[[tuple[AccessKey, ...]], tuple[AccessKey, ...]]) -> None:
    """Replace the keys of a file, which is made if there is none. One at a time; raise `UserError` if it cannot be."""
    path = path.resolve()
    try:
        with _alone(path):
            with suppress(FileNotFoundError):
                _write(path, change(read_keys(path)))
                return
            _write(path, change(()))
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """The lock is the folder's: the file itself is another one after each change."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, keys: tuple[AccessKey, ...]) -> None:
    write_whole(path, msgspec.json.format(msgspec.json.encode(_Content(1, keys))) + b"\n")
