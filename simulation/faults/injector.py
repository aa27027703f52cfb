"""Lets faults happen to the processes and the network of a simulation."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Protocol

from simulation.faults.faults import FailLoad, FailSteps, Fault, Hang, Kill, Partition, Skew, Slow, Stall
from simulation.faults.faulty_network import FaultyNetwork
from simulation.kernel import Kernel
from simulation.reports.timeline import Timeline


class FaultTarget(Protocol):
    """A process that faults can befall."""

    @property
    def is_alive(self) -> bool: ...

    def kill(self) -> None: ...

    def restart(self) -> None: ...

    def hang(self, for_s: float) -> None: ...


class EngineTarget(FaultTarget, Protocol):
    """An engine that faults can befall."""

    def slow_down(self, factor: float) -> None: ...

    def recover(self, factor: float) -> None: ...

    def fail_loads(self, probability: float) -> None: ...

    def mend_loads(self, probability: float) -> None: ...

    def fail_steps(self, probability: float) -> None: ...

    def stall(self, for_s: float) -> None: ...

    def skew(self, ahead_s: float) -> None: ...


class Injector:
    """Lets faults happen, all but those of single messages: these are the network's. The timeline hears of engines'.

    ``others`` are the processes that are no engines, by kind. ``hits`` counts those that found somebody.
    """

    def __init__(
        self,
        kernel: Kernel,
        network: FaultyNetwork,
        engines: Mapping[str, EngineTarget],
        others: Mapping[str, Mapping[str, FaultTarget]],
        timeline: Timeline | None,
        hits: Counter[str],
    ) -> None:
        self._kernel = kernel
        self._network = network
        self._engines = engines
        self._kinds = {name: f" of a {kind}" for kind, processes in others.items() for name in processes}
        self._processes = {**engines, **{name: one for processes in others.values() for name, one in processes.items()}}
        self._timeline = timeline
        self._hits = hits

    def schedule(self, faults: Sequence[Fault]) -> None:
        """Call before anything has happened."""
        at = self._kernel.at
        for fault in faults:
            match fault:
                case Kill():
                    at(fault.at_s, self._kill, fault)
                case Hang():
                    at(fault.at_s, self._hang, fault)
                case Slow():
                    at(fault.at_s, self._slow_down, fault)
                    if fault.for_s < inf:
                        at(fault.at_s + fault.for_s, self._recover, fault)
                case FailLoad():
                    at(fault.at_s, self._fail_loads, fault)
                    if fault.for_s < inf:
                        at(fault.at_s + fault.for_s, self._mend_loads, fault)
                case FailSteps():
                    at(fault.at_s, self._fail_steps, fault.engine, fault.probability)
                    if fault.for_s < inf:
                        at(fault.at_s + fault.for_s, self._fail_steps, fault.engine, 0.0)
                case Stall():
                    at(fault.at_s, self._stall, fault)
                case Skew():
                    self._hits["Skew"] += 1
                    self._engines[fault.engine].skew(fault.ahead_s)
                case Partition():
                    at(fault.at_s, self._cut, fault)
                    at(fault.at_s + fault.for_s, self._mend, fault)

    def _kill(self, kill: Kill) -> None:
        process, is_engine = self._processes[kill.process], kill.process in self._engines
        if not process.is_alive:
            return
        self._hits["Kill" + self._kinds.get(kill.process, "")] += 1
        process.kill()
        if self._timeline is not None and is_engine:
            self._timeline.killed(kill.process, self._kernel.now)
        if kill.restart_after_s is not None:
            self._kernel.after(kill.restart_after_s, self._restart, kill.process)

    def _restart(self, name: str) -> None:
        process = self._processes[name]
        if process.is_alive:
            return
        process.restart()
        if self._timeline is not None and name in self._engines:
            self._timeline.restarted(name, self._kernel.now)

    def _hang(self, hang: Hang) -> None:
        process, is_engine = self._processes[hang.process], hang.process in self._engines
        if not process.is_alive:
            return
        self._hits["Hang" + self._kinds.get(hang.process, "")] += 1
        process.hang(hang.for_s)
        if self._timeline is not None and is_engine:
            self._timeline.hung(hang.process, self._kernel.now, hang.for_s)

    def _slow_down(self, slow: Slow) -> None:
        self._hits["Slow"] += 1
        self._engines[slow.engine].slow_down(slow.factor)
        self._mark([slow.engine], "slowed down")

    def _recover(self, slow: Slow) -> None:
        self._engines[slow.engine].recover(slow.factor)
        self._mark([slow.engine], "as fast as before")

    def _fail_loads(self, fault: FailLoad) -> None:
        self._hits["FailLoad"] += 1
        self._engines[fault.engine].fail_loads(fault.probability)

    def _mend_loads(self, fault: FailLoad) -> None:
        self._engines[fault.engine].mend_loads(fault.probability)

    def _fail_steps(self, engine: str, probability: float) -> None:
        self._hits["FailSteps"] += probability > 0
        self._engines[engine].fail_steps(probability)

    def _stall(self, stall: Stall) -> None:
        self._hits["Stall"] += 1
        self._engines[stall.engine].stall(stall.for_s)
        self._mark([stall.engine], "stalled")

    def _cut(self, partition: Partition) -> None:
        self._hits["Partition"] += 1
        self._network.cut(partition.some, partition.others)
        self._mark({*partition.some, *partition.others}, "cut off")

    def _mend(self, partition: Partition) -> None:
        self._network.mend(partition.some, partition.others)
        self._mark({*partition.some, *partition.others}, "reached again")

    def _mark(self, processes: Iterable[str], event: str) -> None:
        if self._timeline is not None:
            self._timeline.mark(processes, self._kernel.now, event)
