"""Puts together what a gateway has of batches."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mesh.topology.schema import Topology
from router.batches.answering import BatchCallers, LineAnswerer
from router.batches.runner import BatchRunner
from router.batches.stored import StoredBatches


@dataclass(frozen=True, slots=True)
class BatchParts:
    """The parts. ``max_file_bytes``: of one upload."""

    stored: StoredBatches
    answerer: LineAnswerer
    runner: BatchRunner
    max_file_bytes: int

    @classmethod
    def of(
        cls,
        topology: Topology,
        name: str,
        callers: BatchCallers,
        num_waiting: Callable[[], int],
        wall_clock: Callable[[], float],
    ) -> "BatchParts":
        """Make those of the gateway ``name``. Nothing is on disk before somebody uploads a file."""
        spec = topology.batches
        stored = StoredBatches(spec.folder or state_folder(topology.name), spec.max_bytes)
        answerer = LineAnswerer(num_waiting)
        runner = BatchRunner(stored, answerer, callers, wall_clock, name, spec.max_in_flight)
        return cls(stored, answerer, runner, spec.max_file_bytes)


def state_folder(mesh: str) -> Path:
    """Return where the batches of a mesh are, unless its topology says where."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "meshserve" / mesh / "batches"
