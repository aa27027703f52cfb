"""Logs: JSON lines in the process's own file, bounded in size; readable lines on a terminal.

Records of the standard library's logging (uvicorn, asyncio) take the same way.
"""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import Processor

from mesh.process import lazy_log

MAX_BYTES = 16 * 2**20
NUM_OLD_FILES = 3
LOOK_S = 1.0

_SHARED: Sequence[Processor] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
)


def log_file(runtime: Path, process: str) -> Path:
    return runtime / "logs" / f"{process}.log"


def output_file(runtime: Path, process: str) -> Path:
    """Return where a supervised process's standard output and error go: fatal lines, and what native code prints."""
    return runtime / "logs" / f"{process}.out"


def configure(process: str, level: str, file: Path | None = None, terminal: TextIO | None = None) -> None:
    """Send this process's logs to a file, to a terminal, or both. Called once, by the composition root."""
    handlers: list[logging.Handler] = []
    if file is not None:
        handlers.append(_file_handler(file))
    if terminal is not None:
        handlers.append(_terminal_handler(terminal))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level.upper())
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(ignore_frame_names=[lazy_log.__name__]),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(process=process)


class _BoundedFile(RotatingFileHandler):
    """Formats a record once; to know its length, the library formats it twice, and looks the file up by its name.

    Here that is done once in `LOOK_S`: a file that was removed is made again.
    """

    _looked_at = 0.0  # wall clock
    _is_failing = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = (self.format(record) + self.terminator).encode(errors="replace")
            self._look(record.created)
            if self.stream is None:  # it was lost, or the last rollover failed
                Path(self.baseFilename).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.stream = self._open()
            if self.stream.tell() + len(line) > self.maxBytes:
                self.doRollover()
            self.stream.buffer.write(line)
            self.stream.buffer.flush()
            self._is_failing = False
        except Exception as error:  # as the library does: a log that fails must not stop who writes it
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Once, until it is written again: the library would print a stack trace for each record that is lost."""
        if not self._is_failing and sys.stderr is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write(f"{self.baseFilename}: log lines are lost: {error}\n")
        self._is_failing = True

    def _look(self, now: float) -> None:
        if self.stream is None or abs(now - self._looked_at) < LOOK_S:
            return
        self._looked_at = now
        file = Path(self.baseFilename)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self.stream.fileno()), file.stat()):
                return
        self.stream.close()
        self.stream = None


def _file_handler(file: Path) -> logging.Handler:
    handler = _BoundedFile(file, maxBytes=MAX_BYTES, backupCount=NUM_OLD_FILES, encoding="utf-8", delay=True)
    handler.delay = False  # of the first opening alone, so that a full disk keeps no process from starting
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.EventRenamer("message"),
                structlog.processors.JSONRenderer(default=repr),
            ],
        )
    )
    return handler


def _terminal_handler(terminal: TextIO) -> logging.Handler:
    handler = logging.StreamHandler(terminal)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.dev.ConsoleRenderer(
                    colors=terminal.isatty(),
                    timestamp_key="time",
                    # The default prints local variables; a model's tokenizer among them takes minutes.
                    exception_formatter=structlog.dev.plain_traceback,
                ),
            ],
        )
    )
    return handler


def standard_terminal() -> TextIO | None:
    """Standard error if a person looks at it."""
    return sys.stderr if sys.stderr.isatty() else None
