"""Folders that nobody else can put anything into, or put another one in the place of.

Each component is looked at as it is opened: who owns it, who may write there, whether it is a link. So nothing that
another user prepared in a folder for everybody, such as /tmp, is ever followed.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotPrivateError(Exception):
    """Somebody else could tamper with a folder. The message says which, and how."""


def make_private_folder(path: Path) -> None:
    """Make ``path`` and what is missing above it, with mode 0700; be it there, give it that mode.

    Raise `NotPrivateError`, or `OSError` if it cannot be made.
    """
    descriptor = os.open("/", _FLAGS)
    walked = Path("/")
    try:
        for part in Path(os.path.abspath(path)).parts[1:]:
            walked = walked / part
            inner = _enter(descriptor, part, walked)
            os.close(descriptor)
            descriptor = inner
        if os.fstat(descriptor).st_uid != os.getuid():
            raise NotPrivateError(f"{path}: belongs to another user")
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def _enter(parent: int, name: str, path: Path) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    is_link = stat.S_ISLNK(_checked(os.stat(name, dir_fd=parent, follow_symlinks=False), path).st_mode)
    descriptor = os.open(name, _FLAGS & ~os.O_NOFOLLOW if is_link else _FLAGS, dir_fd=parent)
    try:
        _checked(os.fstat(descriptor), path)
    except NotPrivateError:
        os.close(descriptor)
        raise
    return descriptor


def _checked(found: os.stat_result, path: Path) -> os.stat_result:
    """Links of the system's or the user's own are followed: nobody else can have made them, or can change them."""
    if found.st_uid not in (os.getuid(), 0):
        raise NotPrivateError(f"{path}: belongs to another user")
    if stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_ISVTX:
        is_open_to_group = found.st_mode & stat.S_IWGRP and found.st_gid not in (os.getgid(), 0)
        if found.st_mode & stat.S_IWOTH or is_open_to_group:
            raise NotPrivateError(f"{path}: others can write there")
    return found
