"""What a mesh's placement daemon does, as it does it: a line of JSON each time that it says something else.

    python -m bench.placement.watch TOPOLOGY

``at``: seconds on the clock of `time.perf_counter`, which the processes of a machine share.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import msgspec

from bench.harness.arguments import script_parser
from mesh.cli.cluster import visitor
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.placement import Decision, PlacementStatus


class Said(msgspec.Struct, frozen=True):
    """``doing``: in the daemon's words, such as ``plan 3: loading``. ``decision``: its last one."""

    at: float
    doing: str
    decision: Decision | None

    @property
    def is_changing(self) -> bool:
        return self.doing.startswith("plan ")


@contextmanager
def watched(topology: Path, environment: Mapping[str, str]) -> Iterator[list[Said]]:
    """What is said inside of the block is in the list at its end."""
    said: list[Said] = []
    with TemporaryFile("w+b") as heard:
        command = (sys.executable, "-m", "bench.placement.watch", str(topology))
        child = subprocess.Popen(command, stdout=heard, env=dict(environment))
        try:
            yield said
        finally:
            child.terminate()
            child.wait()
        said += _read(heard)


def _read(heard: IO[bytes]) -> Iterator[Said]:
    """What was being written when it ended is left out."""
    heard.seek(0)
    yield from (msgspec.json.decode(line, type=Said) for line in heard if line.endswith(b"\n"))


def changes(said: Sequence[Said]) -> list[tuple[float, float]]:
    """When each plan began to be carried out, and when it was; the last one may still be under way."""
    found: list[tuple[float, float]] = []
    began: float | None = None
    for one in said:
        if one.is_changing and began is None:
            began = one.at
        elif not one.is_changing and began is not None:
            found.append((began, one.at))
            began = None
    return found if began is None else [*found, (began, said[-1].at)]


def decisions(said: Sequence[Said]) -> list[tuple[float, Decision]]:
    """Each once, with the time when it was heard first."""
    found: dict[int, tuple[float, Decision]] = {}
    for one in said:
        if one.decision is not None:
            found.setdefault(one.decision.interval, (one.at, one.decision))
    return list(found.values())


async def watch(topology: Topology) -> None:
    last: Said | None = None
    async with visitor(topology) as sockets:
        async for _, status in sockets.broadcasts():
            if isinstance(status, PlacementStatus):
                said = Said(time.perf_counter(), status.doing, status.decision)
                if last is None or (said.doing, said.decision) != (last.doing, last.decision):
                    print(msgspec.json.encode(said).decode(), flush=True)
                last = said


def main() -> None:
    parser = script_parser("bench.placement.watch", __doc__)
    parser.add_argument("topology", type=Path)
    asyncio.run(watch(load(parser.parse_args().topology)))


if __name__ == "__main__":
    main()
