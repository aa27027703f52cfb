"""Finds the lines on which the keys of a TOML file stand, as the standard parser does not tell."""

import re
from collections.abc import Sequence

KeyPath = tuple[str, ...]

_HEADER = re.compile(r"^\s*\[{1,2}\s*(?P<name>[^\[\]]+?)\s*\]{1,2}\s*(#.*)?$")
_ASSIGNMENT = re.compile(
    r"""^\s*(?P<name>(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def _parts(name: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in _PART.findall(name))


class LineIndex:
    """Line numbers, from 1, by path of table names and key."""

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        table: KeyPath = ()
        for number, line in enumerate(text.splitlines(), start=1):
            if header := _HEADER.match(line):
                table = _parts(header["name"])
                self._note(table, number)
            elif assignment := _ASSIGNMENT.match(line):
                self._note((*table, *_parts(assignment["name"])), number)

    def _note(self, path: KeyPath, number: int) -> None:
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], number)

    def line(self, path: Sequence[str]) -> int:
        """The line of a key, or else of the innermost table around it that is written in the file."""
        for length in range(len(path), 0, -1):
            number = self._lines.get(tuple(path[:length]))
            if number is not None:
                return number
        return 1
