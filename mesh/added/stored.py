"""Keeps the added services of a mesh: in one file of its runtime folder, which every process reads when it starts."""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mesh.added.tables import AddedTable, fitting, read_tables, text_of
from mesh.addresses import runtime_dir
from mesh.errors import CommandError
from mesh.process.whole_file import write_whole
from mesh.topology.parse import load, read_text
from mesh.topology.report import TopologyError
from mesh.topology.schema import Topology

MOST_BYTES: Final = 2**20


def stored_file(topology: Topology) -> Path:
    return runtime_dir(topology) / "added-services.toml"


def stored_tables(topology: Topology) -> tuple[AddedTable, ...]:
    """Return what was added to a mesh, as far as its file leaves room for it. Raise `TopologyError` if that cannot be
    read.
    """
    path = stored_file(topology)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise TopologyError([f"{path}: more than {MOST_BYTES} bytes; remove it"])
    except FileNotFoundError:
        return ()
    others = [service for service in topology.offered if not service.is_added]
    names = {name for service in others for name in (service.name, *service.aliases)}
    return fitting(read_tables(path, read_text(path)), names, {engine.pool for engine in topology.own_engines})


def store_tables(topology: Topology, tables: Sequence[AddedTable]) -> None:
    """Keep these, and nothing else. Raise `OSError`."""
    path = stored_file(topology)
    if tables:
        write_whole(path, text_of(tables).encode())
    else:
        path.unlink(missing_ok=True)


@contextmanager
def changing(topology: Topology) -> Iterator[None]:
    """Let nobody else change what is stored. Raise `CommandError` if somebody does."""
    path = stored_file(topology).with_suffix(".lock")
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"another `mesh services` changes mesh {topology.name}; wait until it has ended"
            raise CommandError(problem) from None
        yield


def load_deployed(path: Path, text: str | None = None) -> Topology:
    """Read a deployment with what was added to it while it runs. ``text``: see `load`. Raise `TopologyError`."""
    topology = load(path, text)
    tables = stored_tables(topology)
    return load(path, text, added=tables) if tables else topology


def load_instead(path: Path, deployed: Topology) -> Topology:
    """Read another file for the mesh of ``deployed``, with what was added to that. Raise `TopologyError`."""
    topology = load(path)
    names = {name for service in topology.offered for name in (service.name, *service.aliases)}
    pools = {engine.pool for engine in topology.own_engines}
    return load(path, added=fitting(stored_tables(deployed), names, pools))
