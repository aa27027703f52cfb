"""Reads the logs that processes of a mesh have written on this machine, page by page, through their rotation."""

import heapq
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mesh.addresses import owner_of, seats

MAX_READ_BYTES = 2**20  # of one file for one page


class LogLine(NamedTuple):
    """``time`` in ISO 8601, UTC."""

    time: str
    text: str


class Position(NamedTuple):
    """How far a file was read, and which file had its name then."""

    inode: int
    offset: int


Positions = Mapping[str, Position]  # by name of a file


class LogPage(NamedTuple):
    """Lines in the order of time, and where the next page begins."""

    lines: list[LogLine]
    positions: Positions


def known_processes(folder: Path) -> list[str]:
    """Return whose logs are in a folder."""
    return sorted({file.name.split(".log")[0] for file in folder.glob("*.log*")})


def last_page(folder: Path, processes: Sequence[str] | None, number: int) -> LogPage | None:
    """Return the last lines of these processes, or of all (None); None: they have no files."""
    files = _files(folder, processes)
    if not files:
        return None
    positions = {file.name: Position(file.stat().st_ino, file.stat().st_size) for file in files if _is_written(file)}
    lines = heapq.merge(*(_read(file) for file in files))
    return LogPage(list(deque(lines, maxlen=max(0, number))), positions)


def next_page(folder: Path, processes: Sequence[str] | None, positions: Positions) -> LogPage:
    """Return whole lines that were written since. A file that was rotated or written anew is read from its start."""
    lines: list[list[LogLine]] = []
    after = dict(positions)
    for file in filter(_is_written, _files(folder, processes)):
        more, after[file.name] = _read_from(file, positions.get(file.name))
        lines.append(more)
    return LogPage(list(heapq.merge(*lines)), after)


def _read_from(file: Path, position: Position | None) -> tuple[list[LogLine], Position]:
    with file.open("rb") as opened:
        found = file.stat()
        is_same = position is not None and position.inode == found.st_ino and position.offset <= found.st_size
        offset = position.offset if is_same and position is not None else 0
        opened.seek(offset)
        read = opened.read(MAX_READ_BYTES)
    whole = read[: read.rfind(b"\n") + 1] if len(read) < MAX_READ_BYTES or b"\n" in read else read
    text = whole.decode(errors="replace").splitlines()
    return list(_parse(file, text)), Position(found.st_ino, offset + len(whole))


def _is_written(file: Path) -> bool:
    return file.suffix in (".log", ".out")


def _files(folder: Path, processes: Sequence[str] | None) -> list[Path]:
    """The files of processes, under either of their names: rotated ones too, oldest first."""
    names = ["*"] if processes is None else [name for process in processes for name in seats(owner_of(process))]
    patterns = [f"{name}.{kind}*" for kind in ("log", "out") for name in names]
    return [file for pattern in patterns for file in sorted(folder.glob(pattern), reverse=True)]


def _read(file: Path) -> Iterator[LogLine]:
    with file.open(encoding="utf-8", errors="replace") as lines:
        yield from _parse(file, lines)


def _parse(file: Path, lines: Iterable[str]) -> Iterator[LogLine]:
    """Lines of JSON as they were logged; other lines bear the time of their file."""
    written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(file.stat().st_mtime))
    for line in lines:
        record = _record(line)
        if record is not None:
            yield LogLine(str(record.get("time", "")), readable(record))
        elif line.strip():
            yield LogLine(written, f"{written[11:19]} {file.stem:<12} output   {line.rstrip()}")


def _record(line: str) -> Mapping[str, Any] | None:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def readable(record: Mapping[str, Any]) -> str:
    """Write a line of the log as ``time process level message key=value``, with a stack trace below it."""
    rest = {key: value for key, value in record.items() if key not in _COLUMNS}
    text = " ".join([str(record.get("message", "")), *(f"{key}={value}" for key, value in rest.items())])
    moment, level = str(record.get("time", ""))[11:23], str(record.get("level", ""))
    line = f"{moment} {record.get('process', ''):<12} {level:<8} {text}"
    return f"{line}\n{record['exception']}" if record.get("exception") else line


_COLUMNS = ("time", "process", "level", "message", "logger", "exception")
