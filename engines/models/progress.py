"""Reports the progress of slow work on models."""

from typing import Protocol


class Progress(Protocol):
    """Called with what is being done and, where it is known, the fraction of it that is done."""

    def __call__(self, step: str, done: float | None = None) -> None: ...
