"""When a mesh's placement daemon carries plans out: a line of JSON each time that it says something else.

    python -m bench.papers.seallm.live.watch TOPOLOGY

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

import msgspec

from bench.harness.arguments import script_parser
from mesh.cli.cluster import visitor
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.placement import PlacementStatus


class Said(msgspec.Struct, frozen=True):
    """``doing``: in the daemon's words, such as ``plan 3: loading``."""

    at: float
    doing: str

    @property
    def is_changing(self) -> bool:
        return self.doing.startswith("plan ")


@contextmanager
def watched(topology: Path, environment: Mapping[str, str]) -> Iterator[list[Said]]:
    """Yield a list that has what is said inside of the block at its end."""
    said: list[Said] = []
    with TemporaryFile("w+b") as heard:
        command = (sys.executable, "-m", "bench.papers.seallm.live.watch", str(topology))
        child = subprocess.Popen(command, stdout=heard, env=dict(environment))
        try:
            yield said
        finally:
            child.terminate()
            child.wait()
        heard.seek(0)
        whole = (line for line in heard if line.endswith(b"\n"))  # the last may have been cut off
        said += [msgspec.json.decode(line, type=Said) for line in whole]


def changes(said: Sequence[Said]) -> list[tuple[float, float]]:
    """Return when each plan began to be carried out, and when it was; the last one may still be under way."""
    found: list[tuple[float, float]] = []
    began: float | None = None
    for one in said:
        if one.is_changing and began is None:
            began = one.at
        elif not one.is_changing and began is not None:
            found.append((began, one.at))
            began = None
    return found if began is None else [*found, (began, said[-1].at)]


async def watch(topology: Topology) -> None:
    last = ""
    async with visitor(topology) as sockets:
        async for _, status in sockets.broadcasts():
            if isinstance(status, PlacementStatus) and status.doing != last:
                last = status.doing
                print(msgspec.json.encode(Said(time.perf_counter(), last)).decode(), flush=True)


def main() -> None:
    parser = script_parser("bench.papers.seallm.live.watch", __doc__)
    parser.add_argument("topology", type=Path)
    asyncio.run(watch(load(parser.parse_args().topology)))


if __name__ == "__main__":
    main()
