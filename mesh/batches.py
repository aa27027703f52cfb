"""The settings of batches: ``[batches]`` of a topology."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class BatchesSpec:
    """Where gateways keep batches and their files, and how much of them. ``folder`` None: in the user's state folder.

    ``max_bytes``: of all files and answers together; ``max_in_flight``: lines that one gateway has under way.
    """

    folder: Path | None = None
    max_bytes: int = 4 * 2**30
    max_file_bytes: int = 200 * 2**20
    max_in_flight: int = 256


USUAL: Final = BatchesSpec()
