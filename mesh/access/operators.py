"""Tells operators from others where there is no keyring: by the file of keys, read anew when it has changed."""

import os
import time
from pathlib import Path

from mesh.access.key_file import read_keys
from mesh.access.keys import AccessKey, split_key
from mesh.errors import UserError

SCHEME = "bearer "


class OperatorKeys:
    """The keys of operators in a file. While the file is broken or gone, nobody has one. Safe in several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[object, dict[str, AccessKey]] = (None, {})

    def __repr__(self) -> str:
        return f"<OperatorKeys {self._path} {len(self._known[1])} keys>"

    def admit(self, authorization: str) -> bool:
        """Return whether that header shows a key of an operator."""
        if not authorization.lower().startswith(SCHEME):
            return False
        if (parts := split_key(authorization[len(SCHEME) :].strip())) is None:
            return False
        key = self._read().get(parts[0])
        return key is not None and not key.has_expired(time.time()) and key.matches(parts[1])

    def _read(self) -> dict[str, AccessKey]:
        try:
            found = os.stat(self._path)
            stamp = found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode
            if stamp != self._known[0]:
                self._known = stamp, {key.id: key for key in read_keys(self._path) if key.admin}
        except (UserError, OSError):
            return {}
        return self._known[1]
