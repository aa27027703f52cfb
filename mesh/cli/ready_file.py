"""A file that is there as long as all processes of this host serve, for what watches ``mesh up`` without asking it."""

from collections.abc import Sequence
from pathlib import Path

from mesh.wire.status import ChildStatus

SERVING = ("running", "standby", "leaving")  # what leaves has a successor


class ReadyFile:
    """Sees every change of a process. What an earlier ``mesh up`` left there is taken away first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"<ReadyFile {self._path}>"

    def changed(self, children: Sequence[ChildStatus]) -> None:
        if all(child.state in SERVING for child in children):
            self._path.touch()
        else:
            self._path.unlink(missing_ok=True)
