"""Lets a program that is told to end (SIGTERM, as by `timeout`) take down first what it started."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def leaving_at_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block when the signal comes, once: `timeout` sends it twice. For the main thread
    alone.
    """
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # for what is started to take things down, too
    raise KeyboardInterrupt
