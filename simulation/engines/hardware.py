"""Steps of several engines on the same hardware: each progresses at a speed that depends on who else computes."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from simulation.kernel import Kernel


class StepWork(NamedTuple):
    """A step. ``alone_s``: its seconds without others. ``slowdown``: how many times as long it takes while others
    compute, on a host. ``has_prompts``: chunks of prompts are in it.
    """

    alone_s: float
    slowdown: float = 1.0
    has_prompts: bool = False


@dataclass(slots=True, eq=False)
class SharedStep:
    engine: str
    work: StepWork
    left_s: float  # of computing alone
    then: Callable[[bool], object]
    had_extra_threads: bool = False


class SharedHardware(ABC):
    """What engines compute on together."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._running: list[SharedStep] = []
        self._advanced_at = 0.0
        self._num_armed = 0

    @abstractmethod
    def _speed(self, step: SharedStep) -> float:
        """As things are now: 1 is that of computing alone."""

    def compute(self, engine: str, work: StepWork, then: Callable[[bool], object]) -> None:
        """Call ``then`` when a step is done. It is told whether the step had more threads than its own."""
        self._advance()
        self._running.append(SharedStep(engine, work, work.alone_s, then))
        self._arm()

    def _remaining_s(self, step: SharedStep) -> float:
        return step.left_s / self._speed(step)

    def _advance(self) -> None:
        elapsed_s, self._advanced_at = self._kernel.now - self._advanced_at, self._kernel.now
        for step in self._running:
            step.left_s -= elapsed_s * self._speed(step)

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
        self._kernel.after(0.0, done.then, done.had_extra_threads)
