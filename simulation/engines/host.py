"""Engines of one machine share its cores, memory and caches: how long steps take depends on who else computes."""

from collections.abc import Sequence

from engines.threads.sharing import Threads, num_threads
from mesh.topology.schema import EngineSpec
from simulation.engines.hardware import SharedHardware, SharedStep
from simulation.kernel import Kernel

SPEEDUP_EXPONENT = 0.75  # twice the threads compute 1.6 (decodes) to 1.75 times as fast (prompts)


class Host(SharedHardware):
    """While several steps run, each takes its ``slowdown`` times as long; how many others run makes no difference.
    Engines with ``max_threads`` compute faster while cores are idle. The host has a core for each thread of its
    engines.
    """

    def __init__(self, kernel: Kernel, engines: Sequence[EngineSpec]) -> None:
        super().__init__(kernel)
        self._numbers = {engine.id: number for number, engine in enumerate(engines)}
        self._threads = [Threads(engine.threads, engine.most_threads) for engine in engines]
        self._num_cores = sum(threads.own for threads in self._threads)
        self._lends = any(threads.most > threads.own for threads in self._threads)

    def _speed(self, step: SharedStep) -> float:
        """As things are now: 1 is that of computing alone, with its own threads."""
        speed = 1.0 / step.work.slowdown if len(self._running) > 1 else 1.0
        if self._lends:
            index = self._numbers[step.engine]
            own = self._threads[index].own
            number = num_threads(index, self._threads, self._works(), self._num_cores)
            if number > own:
                step.had_extra_threads = True
                speed *= (number / own) ** SPEEDUP_EXPONENT
        return speed

    def _works(self) -> list[bool]:
        """Whether each engine computes."""
        works = [False] * len(self._threads)
        for step in self._running:
            works[self._numbers[step.engine]] = True
        return works
