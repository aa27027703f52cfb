"""The virtual clock as one incarnation of a process sees it: it ends with that, and waits while that is held up."""

from collections import deque
from math import inf
from random import Random
from typing import Any

from simulation.kernel import Action, Kernel


class IncarnationKernel(Kernel):
    """The kernel as one incarnation of a process sees it: nothing happens to it after its end, nor while it is held up.

    Its clock is ``ahead_s`` ahead of the kernel's.
    """

    __slots__ = ("_ahead_s", "_ended", "_frozen_until", "_kernel", "_seen", "_waiting")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._ended = False
        self._frozen_until = -inf
        self._ahead_s = 0.0
        self._waiting: deque[tuple[Action, tuple[Any, ...]]] = deque()  # until it goes on, in order
        self._seen = -inf  # by its own clock: rounding must not let anything happen before its time

    @property
    def now(self) -> float:  # type: ignore[override]
        return max(self._kernel.now + self._ahead_s, self._seen)

    def random(self, component: str) -> Random:
        return self._kernel.random(component)

    def at(self, when: float, action: Action, *arguments: Any) -> None:
        self._kernel.at(when - self._ahead_s, self._happen_at, when, action, *arguments)

    def after(self, delay_s: float, action: Action, *arguments: Any) -> None:
        self._kernel.after(delay_s, self.happen, action, *arguments)

    def _happen_at(self, when: float, action: Action, *arguments: Any) -> None:
        self._seen = max(self._seen, when)
        self.happen(action, *arguments)

    def happen(self, action: Action, *arguments: Any) -> None:
        """Now, or when the process goes on, or never."""
        if self._ended:
            return
        if self._waiting or self.is_held_up:
            self._waiting.append((action, arguments))
            if len(self._waiting) == 1:
                self._kernel.at(self._frozen_until, self._go_on)
        else:
            action(*arguments)

    def _go_on(self) -> None:
        """The next of what waited happens, if it is not held up again."""
        if self._ended:
            return
        if not self.is_held_up:
            action, arguments = self._waiting[0]
            action(*arguments)
            self._waiting.popleft()
        if self._waiting:
            self._kernel.at(self._frozen_until, self._go_on)

    @property
    def is_held_up(self) -> bool:
        return self._kernel.now < self._frozen_until

    def end(self) -> None:
        self._ended = True

    def freeze(self, for_s: float) -> None:
        self._frozen_until = max(self._frozen_until, self._kernel.now + for_s)

    def skew(self, ahead_s: float) -> None:
        """Call before anything has happened."""
        self._ahead_s = ahead_s
