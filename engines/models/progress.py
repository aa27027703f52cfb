"""How slow work on models tells what it does."""

from typing import Protocol


class Progress(Protocol):
    """Called with what is being done and, where it is known, the fraction of it that is done."""

    def __call__(self, step: str, done: float | None = None) -> None: ...
