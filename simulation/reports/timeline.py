"""Records what each engine does over time, in bins whose number is bounded however long a run is."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from engines.core import EngineCore
from engines.effects import DropModel, Effect
from engines.scheduling.batch import StepResult
from engines.scheduling.service import Service
from engines.scheduling.step import Step
from engines.transfers.outcomes import EngineOutcome
from kvtransfer.protocol import Buffer
from mesh.wire.messages import EngineMessage
from simulation.observer import CoreParts, ObservedCore

MAX_BINS = 2048
FINEST_S = 2**-7  # width of a bin to begin with; it doubles when a run outgrows the bins


class Activity(IntEnum):
    PREFILL = 0  # chunks of prompts alone
    MIXED = 1  # chunks of prompts, and decodes
    DECODE = 2
    HUNG = 3
    DOWN = 4


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """Something that happened to an engine at a moment: it was killed, came back, took another role."""

    at_s: float
    event: str


class Lane:
    """One engine's row. Seconds by activity, and batch size and KV use weighted by seconds, for each bin of time."""

    def __init__(self, origin_s: float) -> None:
        self.bin_s = FINEST_S
        self.seconds = [_zeros() for _ in Activity]
        self.batch_s = _zeros()  # requests in the batch times seconds
        self.kv_s = _zeros()  # fraction of KV blocks in use times seconds
        self.marks: list[TimelineMark] = []
        self._origin_s = origin_s
        self._running: tuple[float, Activity, int] | None = None
        self._kv = (origin_s, 0.0)

    def begin(self, now: float, activity: Activity, num_requests: int, kv_use: float) -> None:
        self._running = now, activity, num_requests
        self._hold(now, kv_use)

    def end(self, now: float, kv_use: float) -> None:
        """End what began last."""
        if self._running is not None:
            since, activity, num_requests = self._running
            self._running = None
            self._add(self.seconds[activity], since, now, 1.0)
            self._add(self.batch_s, since, now, num_requests)
        self._hold(now, kv_use)

    def hang(self, now: float, until: float) -> None:
        """Interrupt what runs; it goes on later."""
        running = self._running
        self.end(now, self._kv[1])
        self._add(self.seconds[Activity.HUNG], now, until, 1.0)
        if running is not None:
            self._running = until, *running[1:]

    def mark(self, now: float, event: str) -> None:
        self.marks.append(TimelineMark(now, event))

    def close(self, now: float) -> None:
        self.end(now, self._kv[1])

    def _hold(self, now: float, kv_use: float) -> None:
        since, before = self._kv
        self._kv = now, kv_use
        self._add(self.kv_s, since, now, (before + kv_use) / 2)

    def _add(self, bins: "array[float]", since: float, until: float, amount: float) -> None:
        while until - self._origin_s >= MAX_BINS * self.bin_s:
            self.coarsen()
        first, last = since - self._origin_s, until - self._origin_s
        index = int(first / self.bin_s)
        while first < last:
            end = min((index + 1) * self.bin_s, last)
            bins[index] += amount * (end - first)
            first, index = end, index + 1

    def coarsen(self) -> None:
        """Bins of twice the width."""
        self.bin_s *= 2
        for bins in (*self.seconds, self.batch_s, self.kv_s):
            for index in range(MAX_BINS // 2):
                bins[index] = bins[2 * index] + bins[2 * index + 1]
            bins[MAX_BINS // 2 :] = array("d", bytes(8 * (MAX_BINS // 2)))


class Timeline:
    """Lanes by engine. Those of killed engines go on when they are back."""

    def __init__(self, origin_s: float) -> None:
        self.origin_s = origin_s
        self.lanes: dict[str, Lane] = {}
        self.roles: dict[str, str] = {}
        self.end_s = origin_s

    def core(self, parts: CoreParts) -> EngineCore:
        """An engine core whose iterations are seen here."""
        lane = self.lanes.setdefault(parts.settings.id, Lane(self.origin_s))
        self.roles.setdefault(parts.settings.id, str(parts.settings.role))
        return _SeenCore(lane, parts)

    def killed(self, engine: str, now: float) -> None:
        lane = self.lanes[engine]
        lane.end(now, 0.0)
        lane.mark(now, "killed")
        lane.begin(now, Activity.DOWN, 0, 0.0)

    def restarted(self, engine: str, now: float) -> None:
        lane = self.lanes[engine]
        lane.end(now, 0.0)
        lane.mark(now, "restarted")

    def hung(self, engine: str, now: float, for_s: float) -> None:
        self.lanes[engine].mark(now, "hung")
        self.lanes[engine].hang(now, now + for_s)

    def mark(self, processes: Iterable[str], now: float, event: str) -> None:
        """Something happened to those of them that are engines."""
        for process in processes:
            if process in self.lanes:
                self.lanes[process].mark(now, event)

    def close(self, now: float) -> None:
        """The run is over."""
        self.end_s = now
        for lane in self.lanes.values():
            lane.close(now)

    def align(self) -> float:
        """Give all lanes bins of one width; return it."""
        bin_s = max(lane.bin_s for lane in self.lanes.values())
        for lane in self.lanes.values():
            while lane.bin_s < bin_s:
                lane.coarsen()
        return bin_s


class _SeenCore(ObservedCore):
    def __init__(self, lane: Lane, parts: CoreParts) -> None:
        super().__init__(parts)
        self._lane = lane

    def receive(self, sender: str, message: EngineMessage, payload: Sequence[Buffer], now: float) -> list[Effect]:
        role = self.role
        effects = super().receive(sender, message, payload, now)
        if self.role is not role:
            self._lane.mark(now, str(self.role))
        return effects

    def loaded(self, service: Service, now: float) -> list[Effect]:
        self._lane.mark(now, "loaded")
        return super().loaded(service, now)

    def _finish_event(self, outcomes: Sequence[EngineOutcome], now: float) -> list[Effect]:
        effects = super()._finish_event(outcomes, now)
        if any(isinstance(effect, DropModel) for effect in effects):
            self._lane.mark(now, "unloaded")
        return effects

    def next_step(self, now: float) -> tuple[Step | None, list[Effect]]:
        step, effects = super().next_step(now)
        if step is not None:
            self._lane.begin(now, activity_of(step), len(step.shares), self._kv_use())
        return step, effects

    def finish_step(self, result: StepResult, now: float) -> list[Effect]:
        effects = super().finish_step(result, now)
        self._lane.end(now, self._kv_use())
        return effects

    def _kv_use(self) -> float:
        pools = [service.pool for service in self._services.values()]
        num_blocks = sum([pool.num_blocks for pool in pools])
        return 1 - sum([pool.num_free for pool in pools]) / num_blocks if num_blocks else 0.0


def activity_of(step: Step) -> Activity:
    if not step.prompts:
        return Activity.DECODE
    return Activity.PREFILL if len(step.prompts) == len(step.shares) else Activity.MIXED


def _zeros() -> "array[float]":
    return array("d", bytes(8 * MAX_BINS))
