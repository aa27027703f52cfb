"""What tests read off the pages: their fenced blocks, and sessions of commands with what they print."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)?(?P<options>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S
)
_OPTION = re.compile(r'(\w+)="([^"]*)"')
_NUMBER = re.compile(r"[0-9a-f]{12,}|\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page. ``options`` are those behind its language."""

    language: str
    options: dict[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, and the lines that it shows of what the command prints."""

    words: str
    printed: Sequence[str]


def blocks(text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        yield Block(match["language"] or "", dict(_OPTION.findall(match["options"])), match["body"])


def commands(session: str) -> Iterator[Command]:
    """Those of a block ``console``: each begins with ``$``, and what it prints follows."""
    for part in re.split(r"^\$ ", session, flags=re.M)[1:]:
        words, *printed = part.rstrip("\n").split("\n")
        yield Command(words, printed)


def shape(line: str) -> str:
    """A line without its numbers, ids and widths of columns."""
    return " ".join(_NUMBER.sub("#", line).split())


def missing(expected: Sequence[str], printed: str) -> str | None:
    """The first expected line that does not come in its place; ``...`` stands for any lines, or any rest of a line."""
    lines = iter([shape(line) for line in printed.splitlines() if line.strip()])
    for line in expected:
        head, dots, _ = shape(line).partition("...")
        if not head:
            continue
        if not any(found.startswith(head) if dots else found == head for found in lines):
            return line
    return None
