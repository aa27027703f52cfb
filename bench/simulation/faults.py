"""What goes wrong during a run, and when. Times are seconds of the trace: the first request can arrive at 0."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command's arguments are read before anything heavy is loaded
    from bench.simulation.faulty_network import Fate, FaultyNetwork
    from bench.simulation.kernel import Kernel
    from bench.simulation.lives import Mortal
    from bench.simulation.timeline import Timeline
    from mesh.messages import Message


@dataclass(frozen=True, slots=True)
class Kill:
    """An engine loses all that it holds; it is back after ``restart_after_s`` (None: never)."""

    engine: str
    at_s: float
    restart_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """An engine neither hears nor does anything for a while, then goes on."""

    engine: str
    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class Partition:
    """Messages between ``some`` and ``others`` (processes) wait until it is over."""

    some: tuple[str, ...]
    others: tuple[str, ...]
    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class Loss:
    """Each message between ``some`` and ``others`` (processes) is lost with a probability."""

    probability: float
    some: tuple[str, ...]
    others: tuple[str, ...]
    at_s: float = 0.0
    for_s: float = inf

    def concerns(self, sender: str, to: str) -> bool:
        return (sender in self.some and to in self.others) or (sender in self.others and to in self.some)


Fault = Kill | Hang | Partition | Loss


def losing(losses: Sequence[Loss], kernel: "Kernel", random: Random) -> "Fate":
    """The fate of messages under these losses."""

    def fate(sender: str, to: str, message: "Message") -> Sequence[float]:
        for loss in losses:
            is_on = loss.at_s <= kernel.now < loss.at_s + loss.for_s
            if is_on and loss.concerns(sender, to) and random.random() < loss.probability:
                return ()
        return (0.0,)

    return fate


class Injector:
    """Lets faults happen, all but the losses: these are the network's. What befalls engines goes to the timeline."""

    def __init__(
        self, kernel: "Kernel", network: "FaultyNetwork", mortals: "Mapping[str, Mortal]", timeline: "Timeline | None"
    ) -> None:
        self._kernel = kernel
        self._network = network
        self._mortals = mortals
        self._timeline = timeline

    def schedule(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            match fault:
                case Kill():
                    self._kernel.at(fault.at_s, self._kill, fault)
                case Hang():
                    self._kernel.at(fault.at_s, self._hang, fault)
                case Partition():
                    self._kernel.at(fault.at_s, self._cut, fault)
                    self._kernel.at(fault.at_s + fault.for_s, self._mend, fault)

    def _kill(self, kill: Kill) -> None:
        mortal = self._mortals[kill.engine]
        if not mortal.is_alive:
            return
        mortal.kill()
        if self._timeline is not None:
            self._timeline.killed(kill.engine, self._kernel.now)
        if kill.restart_after_s is not None:
            self._kernel.after(kill.restart_after_s, self._restart, kill.engine)

    def _restart(self, engine: str) -> None:
        mortal = self._mortals[engine]
        if mortal.is_alive:
            return
        mortal.restart()
        if self._timeline is not None:
            self._timeline.restarted(engine, self._kernel.now)

    def _hang(self, hang: Hang) -> None:
        mortal = self._mortals[hang.engine]
        if not mortal.is_alive:
            return
        mortal.hang(hang.for_s)
        if self._timeline is not None:
            self._timeline.hung(hang.engine, self._kernel.now, hang.for_s)

    def _cut(self, partition: Partition) -> None:
        self._network.cut(partition.some, partition.others)
        self._mark({*partition.some, *partition.others}, "cut off")

    def _mend(self, partition: Partition) -> None:
        self._network.mend(partition.some, partition.others)
        self._mark({*partition.some, *partition.others}, "reached again")

    def _mark(self, processes: Iterable[str], event: str) -> None:
        if self._timeline is not None:
            self._timeline.mark(processes, self._kernel.now, event)
