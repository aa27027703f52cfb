"""What records do not tell of a simulation: preemptions and migrations."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from engines.core import EngineCore
from engines.effects import Effect
from engines.engine_request import EngineRequest
from engines.scheduling.batch import StepResult
from engines.scheduling.step import Step
from engines.transfers.outcomes import EngineOutcome, Migrated
from simulation.observer import CoreParts, ObservedCore
from simulation.reports.timeline import Timeline


@dataclass(slots=True)
class Seen:
    """``lost_s``: the time from preemptions to the next tokens, in all. ``moves``: how often each request moved."""

    lost_s: float = 0.0
    moves: Counter[str] = field(default_factory=Counter)
    moved_at_s: list[float] = field(default_factory=list)


class Watch(Timeline):
    """A timeline whose engine cores keep what happens to requests instead of what engines compute."""

    def __init__(self, origin_s: float) -> None:
        super().__init__(origin_s)
        self.seen = Seen()

    def core(self, parts: CoreParts) -> EngineCore:
        return _WatchedCore(self.seen, parts)


class _WatchedCore(ObservedCore):
    def __init__(self, seen: Seen, parts: CoreParts) -> None:
        super().__init__(parts)
        self._seen = seen
        self._queues = [service.queue for service in parts.services.values()]
        self._stalled: dict[EngineRequest, tuple[float, int]] = {}  # since when, and with how many tokens

    def next_step(self, now: float) -> tuple[Step | None, list[Effect]]:
        step, effects = super().next_step(now)
        for queue in self._queues:
            for request in queue.waiting:
                if request.num_generated and request not in self._stalled:
                    self._stalled[request] = now, len(request.tokens)
        return step, effects

    def finish_step(self, result: StepResult, now: float) -> list[Effect]:
        effects = super().finish_step(result, now)
        for request, (since, num_tokens) in list(self._stalled.items()):
            if len(request.tokens) > num_tokens:
                self._seen.lost_s += now - since
                del self._stalled[request]
        return effects

    def _finish_event(self, outcomes: Sequence[EngineOutcome], now: float) -> list[Effect]:
        for outcome in outcomes:
            if isinstance(outcome, Migrated) and not outcome.request.is_over:
                self._seen.moves[outcome.request.id] += 1
                self._seen.moved_at_s.append(now)
        return super()._finish_event(outcomes, now)
