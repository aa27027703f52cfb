"""Defines what is kept of files and batches, and how OpenAI's API shows it. Times are whole seconds since the epoch."""

from enum import StrEnum
from typing import Final

import msgspec

KEPT_S: Final = 30 * 86400  # for files, unless they say otherwise
MAX_ERRORS: Final = 100  # of a file that is no batch


class FilePurpose(StrEnum):
    BATCH = "batch"
    OUTPUT = "batch_output"


class StoredFile(msgspec.Struct, frozen=True):
    """A file. ``owner``: whose it is; nobody else sees it."""

    id: str
    owner: str
    filename: str
    purpose: FilePurpose
    num_bytes: int
    created_at: int
    expires_at: int

    def json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.num_bytes,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "filename": self.filename,
            "purpose": str(self.purpose),
            "status": "processed",
            "status_details": None,
        }


class BatchStatus(StrEnum):
    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        return self in (BatchStatus.FAILED, BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED)


class FileFault(msgspec.Struct, frozen=True):
    """A fault of a batch's file. ``line`` counts from 1; None: it is of the whole file."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class StoredBatch(msgspec.Struct, frozen=True):
    """A batch. ``key`` and ``tenant``: who asked for it; empty keys are of meshes without. ``ends_as``: its status once
    its files are written. A moment of 0 has not come.
    """

    id: str
    owner: str
    key: str
    tenant: str
    endpoint: str
    input_file: str
    window: str
    created_at: int
    expires_at: int
    metadata: dict[str, str] | None = None
    status: BatchStatus = BatchStatus.VALIDATING
    ends_as: BatchStatus = BatchStatus.COMPLETED
    errors: tuple[FileFault, ...] = ()
    output_file: str | None = None
    error_file: str | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    moments: dict[str, int] = {}

    @property
    def num_answered(self) -> int:
        return self.completed + self.failed

    def becomes(self, status: BatchStatus, now: float, **changes: object) -> "StoredBatch":
        """Return it with another status, which it has from now on."""
        moments = {**self.moments, f"{status}_at": int(now)}
        return msgspec.structs.replace(self, status=status, moments=moments, **changes)

    def json(self) -> dict[str, object]:
        def at(status: BatchStatus) -> int | None:
            return self.moments.get(f"{status}_at")

        faults = [msgspec.structs.asdict(fault) for fault in self.errors]
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": {"object": "list", "data": faults} if faults else None,
            "input_file_id": self.input_file,
            "completion_window": self.window,
            "status": str(self.status),
            "output_file_id": self.output_file,
            "error_file_id": self.error_file,
            "created_at": self.created_at,
            "in_progress_at": at(BatchStatus.IN_PROGRESS),
            "expires_at": self.expires_at,
            "finalizing_at": at(BatchStatus.FINALIZING),
            "completed_at": at(BatchStatus.COMPLETED),
            "failed_at": at(BatchStatus.FAILED),
            "expired_at": at(BatchStatus.EXPIRED),
            "cancelling_at": at(BatchStatus.CANCELLING),
            "cancelled_at": at(BatchStatus.CANCELLED),
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "metadata": self.metadata,
        }


class LineAnswer(msgspec.Struct, frozen=True):
    """The answer to one line. ``number`` counts from 1; ``text`` is its line of an output or error file."""

    number: int
    is_error: bool
    text: bytes
