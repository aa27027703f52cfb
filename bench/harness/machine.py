"""How much of this machine a measurement had: how fast a core spins beside it, and what other processes took meanwhile.

On a machine that others use, figures of one minute are not those of the next. A spinning reference tells how fast it
was before and after a measurement, and the kernel's own count tells how much CPU went to neither this process nor its
children. A measurement that had less of the machine than its neighbours can then be left out, by a rule that was there
before the figures were.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    """``pace``: million turns of a loop in a second, the worse of before and after. ``others``: cores that other
    processes and other machines of this host had on average.
    """

    pace: float = 0.0
    others: float = 0.0


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
def watched() -> Iterator[Conditions]:
    """Watch the machine while the block runs. Its conditions are filled in at the end."""
    found, before = Conditions(), spin()
    began, busy, ours = time.perf_counter(), _busy_s(), _ours_s()
    try:
        yield found
    finally:
        elapsed_s = time.perf_counter() - began
        found.others = max(0.0, (_busy_s() - busy) - (_ours_s() - ours)) / elapsed_s
        found.pace = min(before, spin())


def disturbed(all_of_them: Sequence[Conditions]) -> list[bool]:
    """Say of each measurement whether it is left out, by `RULE`."""
    usual = median(one.pace for one in all_of_them) if all_of_them else 0.0
    return [one.pace < LEAST_PACE * usual or one.others > MOST_OTHERS for one in all_of_them]


def _busy_s() -> float:
    """CPU time that was not idle, of all cores."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _ours_s() -> float:
    """CPU time of this process and its children, those among them that have ended."""
    me = psutil.Process()
    seconds = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
