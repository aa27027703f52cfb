"""Looks at what commands show: pages, drawings, and what they write to a pseudo-terminal of 80 by 24."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})
MAY_BE_FETCHED = frozenset({"src", "href", "xlink:href", "action", "data", "srcset", "poster"})
ROWS, COLUMNS = 24, 80


class LookedAt(HTMLParser):
    """A page: its words, how many of each element it has, and whatever it should not have."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.counts: dict[str, int] = {}
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._see(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._see(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def _see(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.fetched += [
            value or "" for name, value in attrs if name in MAY_BE_FETCHED and not (value or "").startswith("#")
        ]

    @property
    def text(self) -> str:
        return "\n".join(self.words)


def look_at_page(path: Path) -> LookedAt:
    """A whole page that needs nothing else and runs nothing."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    page = LookedAt(text)
    assert page.fetched == []
    assert "script" not in page.counts
    assert len(page.ids) == len(set(page.ids))
    assert "prefers-color-scheme:dark" in text
    assert "url(http" not in text
    assert "@import" not in text
    return page


def words_in_drawing(path: Path) -> list[str]:
    """The words that an SVG file shows."""
    root = ElementTree.fromstring(path.read_bytes())  # it is our own file
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]


def on_terminal(command: Sequence[str], *, timeout_s: float = 90.0, **environment: str) -> str:
    """What a command that succeeds writes to a terminal, standard error included, without colours.

    Raises if a line is wider than the terminal.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
    surroundings = {**known, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=surroundings) as child:
        os.close(theirs)
        try:
            raw = _read_all(ours)
            _, said = child.communicate(timeout=timeout_s)
        finally:
            child.kill()
            os.close(ours)
    assert child.returncode == 0, said.decode()
    return raw.decode(environment.get("PYTHONIOENCODING", "utf-8"))


def _read_all(terminal: int) -> bytes:
    read = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux says so when the last writer is gone
            return read
        if not part:
            return read
        read += part


def lines_of(written: str) -> list[str]:
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= COLUMNS
    return lines


def mesh(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mesh.cli", *arguments]
