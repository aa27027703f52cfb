"""Everything that is wrong with a topology file, said at once."""

from collections.abc import Sequence
from pathlib import Path

from mesh.errors import UserError
from mesh.topology.lines import KeyPath, LineIndex


class TopologyError(UserError):
    """A topology that cannot be used. ``faults`` are lines like ``file:line: key: what is wrong and what is right``."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class Report:
    """Collects faults, each with its place in the file."""

    def __init__(self, path: Path, lines: LineIndex) -> None:
        self._path = path
        self._lines = lines
        self._faults: list[tuple[int, str]] = []
        self._elsewhere: dict[KeyPath, tuple[Path, LineIndex]] = {}

    def note(self, table: KeyPath, path: Path, lines: LineIndex) -> None:
        """This table is in another file."""
        self._elsewhere[table] = path, lines

    def add(self, key: Sequence[str], problem: str) -> None:
        path, lines = self._elsewhere.get(tuple(key[:2]), (self._path, self._lines))
        line = lines.line(key)
        self._faults.append((line, f"{path}:{line}: {'.'.join(key)}: {problem}"))

    @property
    def is_empty(self) -> bool:
        return not self._faults

    def raise_if_any(self) -> None:
        if self._faults:
            raise TopologyError([text for _, text in sorted(self._faults, key=lambda fault: fault[0])])
