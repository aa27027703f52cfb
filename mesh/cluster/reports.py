"""Reports on the hosts of a mesh that a cluster's engine holds: what commands learn of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mesh.errors import CommandError
from mesh.topology.schema import Topology
from mesh.wire.hosts import HostPlace


class HostReport(NamedTuple):
    """How a host is. ``state``: "waiting" while there is no room for it, or it is started; "standby": nobody wants it.

    ``children``: states by process. ``is_outdated``: it is to run another topology, or nothing.
    """

    host: str
    place: HostPlace | None
    state: str
    problem: str
    children: Mapping[str, str]
    is_outdated: bool = False


class ClusterReport(NamedTuple):
    """Everything that a visitor of the mesh needs. ``key``: of the mesh, in JSON; empty if the topology names its file.

    ``path`` and ``text``: of the topology that runs.
    """

    path: str
    text: str
    key: bytes
    places: list[HostPlace]
    hosts: list[HostReport]


def not_running(topology: Topology, file: Path | None = None) -> CommandError:
    """Return the error that says so, and how to start it. ``file``: the topology, as a user named it."""
    return CommandError(f"mesh {topology.name!r} is not running; start it with `mesh up {file or topology.path}`")
