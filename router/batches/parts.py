"""Puts together what a gateway has of batches."""

from collections.abc import Callable
from dataclasses import dataclass

from mesh.topology.schema import Topology
from router.batches.answering import BatchCallers, LineAnswerer
from router.batches.runner import BatchRunner
from router.batches.stored import StoredBatches
from router.stores.folders import state_folder


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
        stored = StoredBatches(spec.folder or state_folder(topology.name, "batches"), spec.max_bytes)
        answerer = LineAnswerer(num_waiting)
        runner = BatchRunner(stored, answerer, callers, wall_clock, name, spec.max_in_flight)
        return cls(stored, answerer, runner, spec.max_file_bytes)
