"""How much of the machine others used while something was measured."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import psutil


@dataclass(frozen=True, slots=True)
class Contention:
    """Averages over a measurement, in cores."""

    num_cores: int
    ours: float  # the measured processes
    others: float  # everything else that ran
    stolen: float  # by other guests of the same host

    def __str__(self) -> str:
        others = f"{self.others:.2f} by others, {self.stolen:.2f} stolen"
        return f"of {self.num_cores} cores, {self.ours:.2f} were used by the mesh, {others}"


class Watch:
    """Measures inside of a ``with`` block; then `contention` says what it was. ``pids`` must live until its end."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.contention = Contention(os.cpu_count() or 1, 0.0, 0.0, 0.0)
        self._pids = pids

    def __enter__(self) -> "Watch":
        self._began = self._now()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        at_s, ours_s, busy_s, stolen_s = (
            after - before for after, before in zip(self._now(), self._began, strict=True)
        )
        cores = self.contention.num_cores
        self.contention = Contention(cores, ours_s / at_s, max(0.0, busy_s - ours_s) / at_s, stolen_s / at_s)

    def _now(self) -> tuple[float, float, float, float]:
        """Seconds: the clock, our processes, all processes, stolen."""
        each = [psutil.Process(pid).cpu_times() for pid in self._pids]
        everything = psutil.cpu_times()
        ours = sum(times.user + times.system for times in each)
        stolen = getattr(everything, "steal", 0.0)
        return time.perf_counter(), ours, everything.user + everything.nice + everything.system, stolen
