"""A server in virtual time: continuous batching with chunked prefills, and costs that are known."""

from dataclasses import dataclass, field

from engines.costs.step_cost import StepCost, StepLoad
from mesh.wire.status import DecodeCost, PrefillCost
from router.profiling.experiments import Aim, Answered, AnswerPiece, AskedLengths, LoadExperiment, SeenExperiment
from router.profiling.running import STEADY

COST = StepCost(PrefillCost(0.02, 3e-5, 2e-9), DecodeCost(0.02, 4e-4, 1e-7))
CACHED_S = 0.3  # of a prompt's time, where it was cached


@dataclass(slots=True, eq=False)
class _Running:
    ask: AskedLengths
    sent_s: float
    num_computed: int = 0
    events: list[AnswerPiece] = field(default_factory=list)

    @property
    def decodes(self) -> bool:
        return self.num_computed >= self.ask.num_input

    @property
    def context(self) -> int:
        return self.ask.num_input + len(self.events)


@dataclass(slots=True)
class VirtualServer:
    """``request_s`` passes before a request is there."""

    cost: StepCost = COST
    request_s: float = 0.01
    chunk_tokens: int = 512
    max_running: int = 20
    caches: bool = True
    now: float = 0.0

    def run(self, experiment: LoadExperiment) -> SeenExperiment:
        """Carry one experiment out as `run_experiment` does."""
        asks = [_Running(ask, self.now) for ask in experiment.asks]
        joins = [_Running(ask, self.now) for ask in experiment.joins]
        waiting, running, coming, counts = list(asks), [], list(joins), [0] * len(asks)
        while waiting or running:
            due = coming and all(len(one.events) >= count + STEADY for one, count in zip(asks, counts, strict=True))
            if due and not any(one in joins for one in [*waiting, *running]):
                coming[0].sent_s = self.now
                counts = [len(one.events) for one in asks]
                waiting.append(coming.pop(0))
            self._step(waiting, running)
        if experiment.aim is Aim.TWICE:
            asks.append(self._again(asks[0]))
        return SeenExperiment(
            experiment, [_answered(one) for one in asks], [_answered(one) for one in joins if one.events]
        )

    def _again(self, first: _Running) -> _Running:
        again = _Running(first.ask, self.now)
        self.now += (CACHED_S if self.caches else 1.0) * (first.events[0].at_s - first.sent_s)
        again.events.append(AnswerPiece(self.now, 1))
        return again

    def _step(self, waiting: list[_Running], running: list[_Running]) -> None:
        here = [one for one in waiting if one.sent_s + self.request_s <= self.now]
        for one in here[: self.max_running - len(running)]:
            waiting.remove(one)
            running.append(one)
        decodes = [one for one in running if one.decodes]
        left, chunks = self.chunk_tokens - len(decodes), []
        for one in running:
            if not one.decodes and left > 0:
                share = min(left, one.ask.num_input - one.num_computed)
                chunks.append((one, share, one.num_computed))
                left -= share
        if not decodes and not chunks:
            self.now = min(one.sent_s for one in waiting) + self.request_s
            return
        load = StepLoad(
            [(share, before) for _, share, before in chunks], len(decodes), sum(one.context for one in decodes)
        )
        self.now += sum(self.cost.parts(load))
        for one, share, _ in chunks:
            one.num_computed += share
        for one in [*decodes, *(one for one, _, _ in chunks if one.decodes)]:
            one.events.append(AnswerPiece(self.now, len(one.events) + 1))
            if len(one.events) == one.ask.num_output:
                running.remove(one)


def _answered(one: _Running) -> Answered:
    return Answered(one.sent_s, one.events, one.ask.num_input)
