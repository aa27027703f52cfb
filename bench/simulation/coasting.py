"""Many equal decode steps as one event: their ends are known beforehand, unless something happens on the way."""

from bisect import bisect_right

from bench.simulation.steps import StepModel
from engines.batch import Batch
from engines.step_cost import is_decode


class Coast:
    """The ends of the running step and of those that will follow it. ``num_steps`` of them are to be passed by."""

    __slots__ = ("_context", "_ends", "_model", "_num_passed", "_num_requests", "batch")

    def __init__(self, batch: Batch, model: StepModel, started_at: float, num_steps: int) -> None:
        assert all(map(is_decode, batch.chunks)), "only decodes repeat"
        self.batch = batch
        self._model = model
        self._num_requests = len(batch.chunks)
        self._context = sum(chunk.start + 1 for chunk in batch.chunks)
        self._num_passed = 0
        self._ends: list[float] = []
        end = started_at
        for index in range(num_steps + 1):
            end += self._step_s(index)
            self._ends.append(end)

    def _step_s(self, index: int) -> float:
        return self._model.decodes_s(self._num_requests, self._context + index * self._num_requests)

    @property
    def last_end(self) -> float:
        """When the step ends that is not to be passed by."""
        return self._ends[-1]

    @property
    def last_step_s(self) -> float:
        return self._step_s(len(self._ends) - 1) - self._model.between_s

    @property
    def num_left(self) -> int:
        """Steps that are still to be passed by."""
        return len(self._ends) - 1 - self._num_passed

    def pass_until(self, now: float) -> tuple[int, float]:
        """How many steps have ended since the last call, and when the last of them did."""
        num_ended = min(bisect_right(self._ends, now), len(self._ends) - 1)
        num_new, self._num_passed = num_ended - self._num_passed, num_ended
        return num_new, self._ends[num_ended - 1]

    def land(self) -> None:
        """The running step is the last."""
        del self._ends[self._num_passed + 1 :]
