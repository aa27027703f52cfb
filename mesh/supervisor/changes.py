"""Checks what may not change while a mesh runs, because its processes would misunderstand each other."""

from collections.abc import Collection, Iterator
from pathlib import Path

from mesh.directory import directory
from mesh.errors import UserError
from mesh.supervisor.processes.copies import copy_file
from mesh.supervisor.processes.pidfile import PidRecord
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.frames import WIRE_VERSION

MEND = "`mesh down` first, then `mesh up`"


def check_change(runtime: Path, found: Collection[PidRecord], topology: Topology) -> None:
    """Raise `UserError` if what runs cannot be replaced one at a time by what the topology says.

    ``found``: of all hosts.
    """
    hosts = [host.name for host in topology.hosts]
    for record in found:
        if record.host not in hosts:
            raise UserError(
                f"{record.process} runs on host {record.host!r}, which {topology.path} does not have: `mesh down` with "
                "the file as it was first"
            )
        if record.wire != WIRE_VERSION.decode():
            raise UserError(f"{record.process} speaks another version of the mesh's protocol ({record.wire}): {MEND}")
    problems = [problem for old in _topologies(runtime, found, topology.path) for problem in _problems(old, topology)]
    if problems:
        raise UserError("\n".join(f"{topology.path}: {problem}: {MEND}" for problem in dict.fromkeys(problems)))


def _topologies(runtime: Path, found: Collection[PidRecord], path: Path) -> Iterator[Topology]:
    """Those that the processes were started with, as far as there are copies of them."""
    for digest in dict.fromkeys(record.topology for record in found):
        try:
            yield load(path, copy_file(runtime, digest).read_text(encoding="utf-8"))
        except (OSError, ValueError, UserError):
            continue  # the copy was removed, or an older version of this program wrote it


def _problems(old: Topology, new: Topology) -> Iterator[str]:
    before = {service.name: (service.model, service.dtype, service.kv_dtype) for service in old.services}
    for service in new.services:
        now = service.model, service.dtype, service.kv_dtype
        if before.get(service.name, now) != now:
            yield f"services.{service.name}: another model or dtype would run beside the old one under the same name"
    if old.curve_key != new.curve_key:
        yield "mesh.curve_key: processes with different keys do not understand each other"
    theirs, ours = directory(old), directory(new)
    if moved := [process for process in ours if process in theirs and theirs[process] != ours[process]]:
        yield f"{', '.join(moved)}: their ports between processes would change; add new processes at the end"
