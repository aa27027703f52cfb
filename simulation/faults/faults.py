"""Lists what goes wrong during a run, and when. Times are seconds of the trace: the first request can arrive at 0.

What happens to messages is what ZeroMQ over TCP can do to them, and duplication besides. Within one connection they
stay in order: late ones (`Delay`) hold up those behind them. A connection may break and be made anew. What was sent
over the old one may then be lost (`Loss`), or read after what was sent over the new one (`Reorder`), since a PULL
socket reads its connections in turns. ZeroMQ never repeats a message; the protocols have to bear it all the same
(`Duplicate`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the command's arguments are read before anything heavy is loaded
    from simulation.kernel import Kernel

LATE_S = 0.5  # what overtaken messages and second copies are late at most, if nothing else is said


@dataclass(frozen=True, slots=True)
class Kill:
    """A process loses all that it holds; it is back after ``restart_after_s`` (None: never)."""

    process: str
    at_s: float
    restart_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """A process neither hears nor does anything for a while, then goes on."""

    process: str
    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class Slow:
    """Steps of an engine take ``factor`` times as long as its costs say."""

    engine: str
    factor: float
    at_s: float = 0.0
    for_s: float = inf


@dataclass(frozen=True, slots=True)
class FailLoad:
    """Weights of services that an engine is told to load cannot be read, with a probability for each."""

    engine: str
    probability: float
    at_s: float = 0.0
    for_s: float = inf


@dataclass(frozen=True, slots=True)
class FailSteps:
    """Each step of an engine fails with a probability, found out when it should have ended."""

    engine: str
    probability: float
    at_s: float = 0.0
    for_s: float = inf


@dataclass(frozen=True, slots=True)
class Stall:
    """The next step that an engine begins takes so much longer; otherwise the process goes on."""

    engine: str
    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class Skew:
    """All the time, the clock of an engine is ahead of the others' by so much: clocks have no common origin."""

    engine: str
    ahead_s: float


@dataclass(frozen=True, slots=True)
class Partition:
    """Messages between ``some`` and ``others`` (processes) wait until it is over."""

    some: tuple[str, ...]
    others: tuple[str, ...]
    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class Loss:
    """Each message between ``some`` and ``others`` (processes) is lost with a probability: of these kinds, if given."""

    probability: float
    some: tuple[str, ...]
    others: tuple[str, ...]
    at_s: float = 0.0
    for_s: float = inf
    kinds: tuple[str, ...] = ()  # names of messages; none: any


@dataclass(frozen=True, slots=True)
class Delay:
    """Each message between ``some`` and ``others`` is late by up to ``up_to_s``, and so are those behind it."""

    up_to_s: float
    some: tuple[str, ...]
    others: tuple[str, ...]
    at_s: float = 0.0
    for_s: float = inf


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Each message between ``some`` and ``others`` comes a second time with a probability, up to ``late_s`` later."""

    probability: float
    some: tuple[str, ...]
    others: tuple[str, ...]
    at_s: float = 0.0
    for_s: float = inf
    late_s: float = LATE_S


@dataclass(frozen=True, slots=True)
class Reorder:
    """Breaks the connection after each message between ``some`` and ``others``, with a probability.

    The message is late by up to ``late_s``; those behind it take the next connection and overtake it.
    """

    probability: float
    some: tuple[str, ...]
    others: tuple[str, ...]
    at_s: float = 0.0
    for_s: float = inf
    late_s: float = LATE_S


Disturbance = Loss | Delay | Duplicate | Reorder  # of single messages
DISTURBANCES = (Loss, Delay, Duplicate, Reorder)
Fault = Kill | Hang | Slow | Stall | FailLoad | FailSteps | Skew | Partition | Disturbance


class Copy(NamedTuple):
    """A message as it arrives: how late, and whether those behind it on its link have to wait for it."""

    late_s: float = 0.0
    keeps_place: bool = True


ON_TIME = (Copy(),)


class Fates:
    """What becomes of each message under these disturbances: as many copies as come. ``hits`` counts them by kind."""

    def __init__(
        self, disturbances: Sequence[Disturbance], kernel: "Kernel", random: Random, hits: Counter[str]
    ) -> None:
        self._disturbances = disturbances
        self._kernel = kernel
        self._random = random
        self._hits = hits

    def __call__(self, sender: str, to: str, message: object) -> Sequence[Copy]:
        late_s, keeps_place, again_s = 0.0, True, None
        for fault in self._disturbances:
            if not self._is_on(fault, sender, to):
                continue
            match fault:
                case Loss() if fault.kinds and type(message).__name__ not in fault.kinds:
                    continue
                case Delay():
                    late_s += self._random.uniform(0, fault.up_to_s)
                case _ if self._random.random() >= fault.probability:
                    continue
                case Duplicate():
                    again_s = self._random.uniform(0, fault.late_s)
                case Reorder():
                    late_s, keeps_place = late_s + self._random.uniform(0, fault.late_s), False
            self._hits[type(fault).__name__] += 1
            if isinstance(fault, Loss):
                return ()
        first = Copy(late_s, keeps_place)
        return (first,) if again_s is None else (first, Copy(late_s + again_s, keeps_place=False))

    def _is_on(self, fault: Disturbance, sender: str, to: str) -> bool:
        if not fault.at_s <= self._kernel.now < fault.at_s + fault.for_s:
            return False
        some, others = fault.some, fault.others
        return (sender in some and to in others) or (sender in others and to in some)
