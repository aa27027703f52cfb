"""Finds a running mesh for commands, which are of no host: its addresses and its key."""

import os
from dataclasses import dataclass
from pathlib import Path

from mesh.addresses import runtime_dir
from mesh.cluster.slurm import is_on_slurm, places_here, places_in_job
from mesh.directory import Directory, directory
from mesh.errors import CommandError
from mesh.sockets.curve import CurveKey
from mesh.topology.schema import ClusterEngine, Topology


@dataclass(frozen=True, slots=True)
class Located:
    """What commands need to speak to a mesh. ``key``: None where it has none."""

    directory: Directory
    key: CurveKey | None


def locate(topology: Topology) -> Located:
    """Find a mesh. Raise `CommandError` if it does not run, where that can be known, or `UserError`."""
    if topology.cluster is not None and topology.cluster.on is ClusterEngine.RAY:
        return _on_ray(topology)
    key = CurveKey.load(topology.curve_key) if topology.curve_key else None
    if is_on_slurm(topology):
        places = places_here(runtime_dir(topology)) or places_in_job(topology, os.environ)
        return Located(directory(topology, places), key)
    return Located(directory(topology), key)


def _on_ray(topology: Topology) -> Located:
    from mesh.cluster.ray.session import find_report

    report = find_report(topology)
    if report is None:
        raise not_running(topology, topology.path)
    key = CurveKey.of(report.key) if report.key else None
    if key is None and topology.curve_key is not None:
        key = CurveKey.load(topology.curve_key)
    return Located(directory(topology, report.places), key)


def not_running(topology: Topology, file: Path) -> CommandError:
    """Return the error that says so, and how to start it."""
    return CommandError(f"mesh {topology.name!r} is not running; start it with `mesh up {file}`")
