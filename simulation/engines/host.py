"""Engines of one machine share its memory and caches: their steps take longer while others compute."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulation.kernel import Kernel


@dataclass(slots=True, eq=False)
class _Running:
    left_s: float  # of computing alone
    slowdown: float
    then: Callable[..., object]
    arguments: tuple[Any, ...]


class Host:
    """While several steps run, each takes its ``slowdown`` times as long; how many others run makes no difference."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._running: list[_Running] = []
        self._advanced_at = 0.0
        self._num_armed = 0

    def compute(self, alone_s: float, slowdown: float, then: Callable[..., object], *arguments: Any) -> None:
        """Call ``then(*arguments)`` when a step that takes ``alone_s`` without others is done."""
        self._advance()
        self._running.append(_Running(alone_s, slowdown, then, arguments))
        self._arm()

    def _remaining_s(self, step: _Running) -> float:
        """As things are now."""
        return step.left_s * step.slowdown if len(self._running) > 1 else step.left_s

    def _advance(self) -> None:
        elapsed_s, self._advanced_at = self._kernel.now - self._advanced_at, self._kernel.now
        is_shared = len(self._running) > 1
        for step in self._running:
            step.left_s -= elapsed_s / step.slowdown if is_shared else elapsed_s

    def _arm(self) -> None:
        self._num_armed += 1
        if self._running:
            self._kernel.after(min(map(self._remaining_s, self._running)), self._end, self._num_armed)

    def _end(self, number: int) -> None:
        if number != self._num_armed:
            return  # another step came in between
        self._advance()
        done = min(self._running, key=self._remaining_s)
        self._running.remove(done)
        self._arm()
        done.then(*done.arguments)
