"""One batch as its client sees it: begun or found again, watched, fetched."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TextIO

from mesh.errors import UserError
from router.batches.command.client import BatchClient
from router.batches.command.progress import BatchProgress

LOOK_S: Final = 1.0
OVER: Final = ("completed", "failed", "expired", "cancelled")
MAX_FIRST_LINE: Final = 1 << 20  # bytes


class BatchJob:
    """What it began is in a file beside the output until the answers are there."""

    def __init__(
        self,
        client: BatchClient,
        file: Path,
        output: Path,
        out: TextIO,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._file = file
        self._output = output
        self._begun = output.with_name(f"{output.name}.batch")
        self._out = out
        self._clock = clock
        self._pause = pause

    def run(self, endpoint: str | None, window: str, *, cancels: bool = False) -> bool:
        """Return whether all requests were answered. Raise `UserError`."""
        batch = self._known()
        if cancels:
            if batch is None:
                raise UserError(f"{self._begun}: no batch was begun for {self._output}")
            batch = batch if batch["status"] in OVER else self._client.cancel(batch["id"])
        elif batch is None:
            batch = self._begin(endpoint, window)
        batch = self._watch(batch)
        self._fetch(batch)
        return self._tell(batch)

    def _known(self) -> dict[str, Any] | None:
        """The batch that an earlier call began, if the mesh still knows it."""
        try:
            batch_id = self._begun.read_text().strip()
        except FileNotFoundError:
            return None
        found = self._client.show(batch_id) if batch_id.startswith("batch_") else None
        if found is not None:
            self._out.write(f"goes on with {batch_id}, which was begun before ({self._begun})\n")
        return found

    def _begin(self, endpoint: str | None, window: str) -> dict[str, Any]:
        if self._output.exists():
            raise UserError(f"{self._output}: exists already; name another one with -o, or remove it")
        endpoint = endpoint or self._first_url()
        file_id = self._client.upload(self._file)
        batch = self._client.create(file_id, endpoint, window)
        try:
            self._begun.write_text(f"{batch['id']}\n")
        except OSError as error:
            raise UserError(f"{self._begun}: cannot be written: {error.strerror}") from None
        return batch

    def _first_url(self) -> str:
        try:
            with self._file.open("rb") as file:
                first = json.loads(file.readline(MAX_FIRST_LINE))
            return str(first["url"])
        except FileNotFoundError:
            raise UserError(f"{self._file}: no such file") from None
        except OSError as error:
            raise UserError(f"{self._file}: cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            wanted = '{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {...}}'
            raise UserError(f"{self._file}:1: is no request of a batch; a line is like {wanted}") from None

    def _watch(self, batch: dict[str, Any]) -> dict[str, Any]:
        progress = BatchProgress(self._out)
        while batch["status"] not in OVER:
            progress.show(batch, self._clock())
            self._pause(LOOK_S)
            found = self._client.show(batch["id"])
            if found is None:
                raise UserError(f"{batch['id']}: the mesh does not know it any more")
            batch = found
        progress.show(batch, self._clock())
        progress.end()
        return batch

    def _fetch(self, batch: dict[str, Any]) -> None:
        """Answers, then errors, into one file; each line says by its ``custom_id`` whose it is."""
        part = self._output.with_name(f"{self._output.name}.part")
        try:
            with part.open("wb") as file:
                for key in ("output_file_id", "error_file_id"):
                    if batch.get(key):
                        self._client.download(batch[key], file)
            part.replace(self._output)
            self._begun.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{self._output}: cannot be written: {error.strerror}") from None

    def _tell(self, batch: dict[str, Any]) -> bool:
        counts = batch["request_counts"]
        for fault in ((batch.get("errors") or {}).get("data") or [])[:10]:
            where = f"{self._file}:{fault['line']}" if fault.get("line") else str(self._file)
            self._out.write(f"{where}: {fault['message']}\n")
        self._out.write(
            f"{batch['status']}: {counts['completed']} of {counts['total']} answered, {counts['failed']} failed; "
            f"{self._output}\n"
        )
        return batch["status"] == "completed" and not counts["failed"]
