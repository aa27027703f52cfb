"""Keeps what was last known of a mesh whose hosts move: for commands while the cluster's engine does not answer.

It is a file of this user alone, because the mesh's key is in it.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from mesh.addresses import runtime_dir
from mesh.cluster.reports import ClusterReport
from mesh.process.runtime_folder import make_runtime_dir
from mesh.topology.schema import Topology


class LastReport(NamedTuple):
    """``at``: seconds since the epoch."""

    at: float
    report: ClusterReport


def remember(topology: Topology, report: ClusterReport) -> None:
    """Keep what is known now."""
    make_runtime_dir(topology)
    file = _file(topology)
    fresh = file.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(msgspec.msgpack.encode(LastReport(time.time(), report)))
    fresh.replace(file)


def recall(topology: Topology) -> LastReport | None:
    """Return what was last known; None: nothing."""
    try:
        return msgspec.msgpack.decode(_file(topology).read_bytes(), type=LastReport)
    except (OSError, msgspec.MsgspecError):
        return None


def forget(topology: Topology) -> None:
    """Take note that the mesh has ended."""
    _file(topology).unlink(missing_ok=True)


def _file(topology: Topology) -> Path:
    return runtime_dir(topology) / "seen.cluster"
