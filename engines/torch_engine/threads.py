"""Sets how many threads torch and our kernels compute with, before a step and before each of its layers."""

from collections.abc import Callable

import torch

FEW_ROWS = 16  # steps of fewer gain less from more threads than waking those takes


class ThreadSetter:
    """Used in the one thread that computes. ``has_extra``: the step that began last had more threads than ``own``."""

    def __init__(self, own: int) -> None:
        self.own = own
        self.has_extra = False
        self._now = own
        self._is_large = False
        self._available: Callable[[], int] | None = None

    def follow(self, available: Callable[[], int]) -> None:
        """Use as many threads as that says, from the next step on."""
        self._available = available

    def begin_step(self, num_rows: int) -> None:
        """A step of so many tokens begins."""
        self.has_extra, self._is_large = False, num_rows >= FEW_ROWS
        self.set()

    def set(self) -> None:
        """Set the number of threads to what is available now."""
        if self._available is None:
            return
        number = self._available() if self._is_large else self.own
        if number != self._now:
            torch.set_num_threads(number)
            self._now = number
        self.has_extra = self.has_extra or number > self.own
