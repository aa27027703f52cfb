"""Decides how many threads an engine computes with while others of its host rest."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threads:
    """``own`` threads are an engine's at any time; it computes with ``most`` where cores are idle."""

    own: int
    most: int


def num_threads(me: int, engines: Sequence[Threads], works: Sequence[bool], num_cores: int) -> int:
    """Return how many threads engine ``me`` computes with now, its own at least.

    Cores that the own threads of working engines leave are idle. Working engines that may have more than their own
    divide them evenly; the first of them get what remains. All engines of the host find the same, so nobody asks
    anybody ("lend when idle": Garcia, Corbalan and Labarta, 2009).
    """
    working = [number for number, is_working in enumerate(works) if is_working or number == me]
    idle = num_cores - sum([engines[number].own for number in working])
    takers = [number for number in working if engines[number].most > engines[number].own]
    if idle <= 0 or me not in takers:
        return engines[me].own
    each, rest = divmod(idle, len(takers))
    share = each + (takers.index(me) < rest)
    return min(engines[me].most, engines[me].own + share)
