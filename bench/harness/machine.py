"""How much of this machine a measurement had: how fast a core spins beside it, and what other processes took meanwhile.

On a machine that others use, figures of one minute are not those of the next. A spinning reference tells how fast it
was before and after a measurement, and the kernel's own count tells how much CPU went to neither this process nor its
children. A measurement that had less of the machine than its neighbours can then be left out, by a rule that was there
before the figures were.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median
from typing import Final

import psutil

SPINS: Final = 200_000  # turns of a loop, some milliseconds
SLICES: Final = 15
LEAST_PACE: Final = 0.85  # of the median pace of all measurements
MOST_OTHERS: Final = 0.2  # cores
RULE: Final = (
    f"the machine spun at less than {LEAST_PACE:.0%} of its median pace, "
    f"or other processes took more than {MOST_OTHERS:g} cores"
)


@dataclass(slots=True)
class Conditions:
    """``pace``: million turns of a loop in a second, the worse of before and after. The rest is in cores, on average:
    what ``others`` used, the measured processes (``ours``), and other machines of this host (``stolen``).
    """

    pace: float = 0.0
    others: float = 0.0
    ours: float = 0.0
    stolen: float = 0.0


def timed(run: Callable[[], object]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def spin() -> float:
    """Return million turns of a loop in a second, by the wall clock: the median of short slices."""
    took_s = list[float]()
    for _ in range(SLICES):
        began = time.perf_counter()
        for _ in range(SPINS):
            pass
        took_s.append(time.perf_counter() - began)
    return SPINS / median(took_s) / 1e6


@contextmanager
def watched(pids: Sequence[int] | None = None) -> Iterator[Conditions]:
    """Watch the machine while the block runs. Its conditions are filled in at the end. ``pids``: processes that are
    measured, which live until then; None: this one and its children, those among them that have ended.
    """
    found, before = Conditions(), spin()
    began = _now(pids)
    try:
        yield found
    finally:
        at_s, ours_s, busy_s, stolen_s = (after - first for after, first in zip(_now(pids), began, strict=True))
        found.ours, found.stolen = ours_s / at_s, stolen_s / at_s
        found.others = max(0.0, busy_s - ours_s) / at_s
        found.pace = min(before, spin())


def disturbed(all_of_them: Sequence[Conditions]) -> list[bool]:
    """Say of each measurement whether it is left out, by `RULE`."""
    usual = median(one.pace for one in all_of_them) if all_of_them else 0.0
    return [one.pace < LEAST_PACE * usual or one.others + one.stolen > MOST_OTHERS for one in all_of_them]


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time of processes and of their children that have ended. One that is gone counts as none."""
    seconds = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            seconds += sum(psutil.Process(pid).cpu_times()[:4])
    return seconds


def _now(pids: Sequence[int] | None) -> tuple[float, float, float, float]:
    """Seconds: the clock, the measured processes, all processes, stolen."""
    if pids is None:
        me = psutil.Process()
        pids = [me.pid, *(child.pid for child in me.children(recursive=True))]
    times = psutil.cpu_times()
    stolen_s = getattr(times, "steal", 0.0)
    idle_s = times.idle + times.iowait + times.guest + times.guest_nice
    return time.perf_counter(), cpu_s(pids), float(sum(times) - idle_s - stolen_s), stolen_s
