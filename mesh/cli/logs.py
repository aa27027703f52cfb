"""``mesh logs``: the logs of a mesh's processes on this host, readable, in the order of time."""

import argparse
import heapq
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from mesh.addresses import owner_of, seats
from mesh.cli.arguments import add_topology, print_line
from mesh.errors import EXIT_FAILURE

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers

FOLLOW_S = 0.2  # files cannot be awaited: how often to look for more


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("logs", help="show the logs of the processes on this host")
    parser.add_argument("process", nargs="?", metavar="PROCESS", help="only this one, such as `prefill` or `decode-0`")
    add_topology(parser, option=True)
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is logged from now on")
    parser.add_argument("-n", "--lines", type=int, default=200, metavar="N", help="the last N lines (default: 200)")
    parser.set_defaults(run=run)


class LogLine(NamedTuple):
    time: str
    text: str


def run(options: argparse.Namespace) -> int:
    from mesh.addresses import runtime_dir
    from mesh.topology.parse import load

    topology = load(options.file)
    folder = runtime_dir(topology) / "logs"
    files = _files(folder, options.process)
    if not files:
        known = sorted({file.name.split(".log")[0] for file in folder.glob("*.log*")})
        hint = f"; there are logs of {', '.join(known)}" if known else ""
        sys.stderr.write(f"no logs of {options.process or 'this mesh'} in {folder}{hint}\n")
        return EXIT_FAILURE
    for line in deque(heapq.merge(*(_read(file) for file in files)), maxlen=max(0, options.lines)):
        print_line(line.text)
    if options.follow:
        _follow([file for file in files if file.suffix in (".log", ".out")])
    return 0


def _files(folder: Path, process: str | None) -> list[Path]:
    """The files of one process, under either of its names, or of all: rotated ones too, oldest first."""
    names = ["*"] if process is None else seats(owner_of(process))
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


def _follow(files: Sequence[Path]) -> None:
    """Until Ctrl-C. A file that was rotated or written anew is read from its start."""
    with ExitStack() as stack:
        tails = [stack.enter_context(closing(Tail(file))) for file in files]
        while True:
            for tail in tails:
                for line in _parse(tail.path, tail.more()):
                    print_line(line.text)
            time.sleep(FOLLOW_S)


class Tail:
    """Reads what is appended to a file, beginning at its present end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] = path.open(encoding="utf-8", errors="replace")
        self._file.seek(0, 2)
        self._rest = ""

    def more(self) -> list[str]:
        """Whole new lines."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        if self._was_replaced():
            self._file.close()
            self._file = self.path.open(encoding="utf-8", errors="replace")
            *others, self._rest = self._file.read().split("\n")
            lines += others
        return lines

    def close(self) -> None:
        self._file.close()

    def _was_replaced(self) -> bool:
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return False
        return now.st_ino != os.fstat(self._file.fileno()).st_ino or now.st_size < self._file.tell()
