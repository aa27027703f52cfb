"""Numbers of incarnations: of two incarnations of one process, the newer one has the higher number."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path

from mesh.process.lazy_log import LazyLog
from mesh.wire.hosts import HostPlace

MOST_DIGITS = 15  # of an incarnation: the year 33658
PER_HOST = 2**20  # incarnations of a process within one incarnation of its host

log = LazyLog()


def incarnation_of(runtime: Path, process: str, host: str, places: Sequence[HostPlace] | None) -> int:
    """The number of the incarnation of a process on ``host`` that begins now.

    It is counted by the clock of this machine. With ``places`` hosts come back on other machines, whose clocks differ:
    then it is counted from the incarnation of the host on, which whoever places hosts has numbered.
    """
    if places is None:
        return next_incarnation(runtime, process, time.time_ns() // 1_000_000)
    first = next(place.incarnation for place in places if place.name == host)
    return next_incarnation(runtime, process, first, first + PER_HOST)


def next_incarnation(runtime: Path, process: str, first: int, before: float = inf) -> int:
    """Return ``first``, or a number above the last one, even if the wall clock was set back.

    Numbers that are not below ``before`` are of another numbering, and do not count. Where it cannot be written, as on
    a full disk, ``first`` alone tells the next incarnation from this one.
    """
    last = last_incarnation(runtime, process)
    incarnation = max(first, last + 1) if last < before else first
    file = _incarnation_file(runtime, process)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        new.write_text(str(incarnation))
        new.replace(file)
    except OSError as error:
        log.warning("cannot keep the number of this incarnation", file=str(file), error=error.strerror)
        with suppress(OSError):
            new.unlink(missing_ok=True)
    return incarnation


def last_incarnation(runtime: Path, process: str) -> int:
    """The number of the newest incarnation that began on this host; 0: none did, or nobody knows."""
    try:
        last = _incarnation_file(runtime, process).read_bytes()
    except OSError:
        return 0
    return int(last) if last.isdigit() and len(last) <= MOST_DIGITS else 0


def _incarnation_file(runtime: Path, process: str) -> Path:
    return runtime / f"{process}.incarnation"
