"""Engines of one machine share its cores, memory and caches: how long steps take depends on who else computes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engines.threads.sharing import Threads, num_threads
from mesh.topology.schema import EngineSpec
from simulation.kernel import Kernel

SPEEDUP_EXPONENT = 0.75  # twice the threads compute 1.6 (decodes) to 1.75 times as fast (prompts)


@dataclass(slots=True, eq=False)
class _Running:
    engine: int
    left_s: float  # of computing alone, with its own threads
    slowdown: float
    then: Callable[[bool], object]
    had_extra_threads: bool = False


class Host:
    """While several steps run, each takes its ``slowdown`` times as long; how many others run makes no difference.
    Engines with ``max_threads`` compute faster while cores are idle. The host has a core for each thread of its
    engines.
    """

    def __init__(self, kernel: Kernel, engines: Sequence[EngineSpec]) -> None:
        self._kernel = kernel
        self._numbers = {engine.id: number for number, engine in enumerate(engines)}
        self._threads = [Threads(engine.threads, engine.most_threads) for engine in engines]
        self._num_cores = sum(threads.own for threads in self._threads)
        self._lends = any(threads.most > threads.own for threads in self._threads)
        self._works = [False] * len(engines)
        self._running: list[_Running] = []
        self._advanced_at = 0.0
        self._num_armed = 0

    def compute(self, engine: str, alone_s: float, slowdown: float, then: Callable[[bool], object]) -> None:
        """Call ``then`` when a step is done that takes ``alone_s`` without others, with its own threads. It is told
        whether the step had more.
        """
        self._advance()
        number = self._numbers[engine]
        self._works[number] = True
        self._running.append(_Running(number, alone_s, slowdown, then))
        self._arm()

    def _speed(self, step: _Running) -> float:
        """As things are now: 1 is that of computing alone, with its own threads."""
        speed = 1.0 / step.slowdown if len(self._running) > 1 else 1.0
        if self._lends:
            own = self._threads[step.engine].own
            number = num_threads(step.engine, self._threads, self._works, self._num_cores)
            if number > own:
                step.had_extra_threads = True
                speed *= (number / own) ** SPEEDUP_EXPONENT
        return speed

    def _remaining_s(self, step: _Running) -> float:
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
        self._works[done.engine] = False
        self._arm()
        self._kernel.after(0.0, done.then, done.had_extra_threads)
