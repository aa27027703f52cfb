"""An executor that takes no time and says that it took what a cost model says."""

from engines.costs.step_cost import StepCost
from engines.scheduling.batch import Batch, ChunkResult, StepResult
from mesh.wire.transfers import KVShape


class ScriptedExecutor:
    def __init__(self, cost: StepCost, slow_every: int = 0) -> None:
        self._cost = cost
        self._slow_every = slow_every
        self.batches: list[Batch] = []

    def shape(self, service: str) -> KVShape:
        return KVShape(1, 1, 4, 4, "float32")

    def execute(self, batch: Batch) -> StepResult:
        self.batches.append(batch)
        slow = self._slow_every and len(self.batches) % self._slow_every == 0
        return StepResult([ChunkResult(0)] * len(batch.chunks), self._cost.elapsed_s(batch) * (5 if slow else 1))

    def recover(self, *, frees_memory: bool) -> None:
        """Nothing is kept."""
