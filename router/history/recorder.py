"""Writes the records of a gateway to a file, in a thread of its own: a slow or full disk delays no request.

Theory of operation. The event loop puts what ended into a bounded queue and goes on. Twice a second the thread takes
all that is there, names the blocks of the prompts, and appends lines with one write. What the queue or the disk does
not take is dropped and counted. After a failure the file is opened anew with the same header, so that its reader knows
that a line may have been cut off there.
"""

import contextvars
import os
import threading
from collections import deque
from io import FileIO
from pathlib import Path

import structlog
from msgspec.structs import replace

from mesh.errors import UserError
from mesh.wire.requests import RequestSpec
from router.history.records import Header, Record, encode_line
from router.view.prompt_hashes import block_hashes

MAX_PENDING = 2048  # records, with their prompts
FLUSH_S = 0.5
CLOSE_S = 5.0  # for a disk that hangs when the gateway stops

log = structlog.get_logger()


class RecordingFile:
    """Appends whole lines. Every method may raise `OSError`; after one, the next append opens the file anew."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header
        self._file: FileIO | None = None

    def open(self) -> None:
        """Begin a segment, on a line of its own."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = FileIO(self.path, "a+")
        self._write(self._end_of_cut_line() + encode_line(self.header))

    def append(self, lines: bytes) -> None:
        """Append to the file that has this name now: somebody may have moved the last one away."""
        if self._file is None or self._has_moved():
            self.close()
            self.open()
        self._write(lines)

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _write(self, lines: bytes) -> None:
        assert self._file is not None
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self.close()
            raise

    def _has_moved(self) -> bool:
        assert self._file is not None
        try:
            return not os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except FileNotFoundError:
            return True

    def _end_of_cut_line(self) -> bytes:
        assert self._file is not None
        if self._file.seek(0, os.SEEK_END) == 0:
            return b""
        self._file.seek(-1, os.SEEK_END)
        return b"" if self._file.read(1) == b"\n" else b"\n"


class Recorder:
    """Records requests into a file. ``salt`` keeps the names of prompt blocks from being guessed; it is written
    nowhere.

    Raises `UserError` if the file cannot be written at first.
    """

    def __init__(self, file: RecordingFile, salt: bytes) -> None:
        self._file = file
        self._salt = salt
        self._pending: deque[tuple[Record, RequestSpec]] = deque()
        self._num_overflowed = 0  # counted by the event loop
        self._num_unwritten = 0  # counted by the thread
        self._has_complained = False
        self._is_closing = threading.Event()
        try:
            file.open()
        except OSError as error:
            raise UserError(f"{file.header.gateway}: cannot record in {file.path}: {error.strerror}") from None
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="recorder", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Recorder {self._file.path} {len(self._pending)} pending, {self.num_dropped} dropped>"

    @property
    def num_dropped(self) -> int:
        return self._num_overflowed + self._num_unwritten

    def take(self, record: Record, spec: RequestSpec) -> None:
        """Take what is to be recorded. It never waits."""
        if len(self._pending) < MAX_PENDING:
            self._pending.append((record, spec))
        else:
            self._num_overflowed += 1
            self._complain("too many records are waiting to be written")

    def close(self) -> None:
        """Write what is left, unless that takes longer than `CLOSE_S`."""
        self._is_closing.set()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            log.warning("recording cut off", path=str(self._file.path), num_lost=len(self._pending))

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closing.wait(FLUSH_S):
            self._flush()
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        batch = [self._pending.popleft() for _ in range(len(self._pending))]
        if not batch:
            return
        lines = b"".join(self._line(record, spec) for record, spec in batch)
        try:
            self._file.append(lines)
        except OSError as error:
            self._num_unwritten += len(batch)
            self._complain(error.strerror or str(error))
        else:
            self._recover()

    def _line(self, record: Record, spec: RequestSpec) -> bytes:
        return encode_line(replace(record, hash_ids=block_hashes(spec.prompt, self._salt)))

    def _complain(self, reason: str) -> None:
        """Once, until records can be written again."""
        if not self._has_complained:
            self._has_complained = True
            log.warning("records are being dropped", path=str(self._file.path), reason=reason)

    def _recover(self) -> None:
        if self._has_complained:
            self._has_complained = False
            log.info("recording goes on", path=str(self._file.path), num_dropped=self.num_dropped)
