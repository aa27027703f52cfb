"""Many equal decode steps as one event: their ends are known beforehand, unless something happens on the way."""

from math import sqrt

from engines.costs.step_cost import StepLoad
from engines.scheduling.step import Step
from simulation.engines.steps import StepModel

TIMES_AGREE_S = 1e-6  # rounding of sums of step times is far below
HELD_TOKENS = 256  # of a request that coasting engines deliver at a time, lest coasts end for them


class Coast:
    """The running step and those that will follow it, of which ``num_steps`` are to be passed by.

    Contexts grow by one token a request and step, and so the times of steps by the same amount from one to the next.
    """

    __slots__ = ("_first_s", "_growth_s", "_model", "_num_passed", "_num_steps", "_started_at", "step")

    def __init__(self, step: Step, load: StepLoad, model: StepModel, started_at: float, num_steps: int) -> None:
        _, num_requests, context, _ = load
        self.step = step
        self._model = model
        self._started_at = started_at
        self._first_s = model.decodes_s(num_requests, context)
        self._growth_s = model.decodes_s(num_requests, context + num_requests) - self._first_s
        self._num_steps = num_steps
        self._num_passed = 0

    def _end(self, index: int) -> float:
        """When the step of that index ends; the running one has index 0."""
        return self._started_at + (index + 1) * (self._first_s + index * self._growth_s / 2)

    @property
    def last_end(self) -> float:
        """When the step ends that is not to be passed by."""
        return self._end(self._num_steps)

    @property
    def last_step_s(self) -> float:
        return self._first_s + self._num_steps * self._growth_s - self._model.between_s

    @property
    def num_left(self) -> int:
        """Steps that are still to be passed by."""
        return self._num_steps - self._num_passed

    def end_before(self, until: float) -> bool:
        """Pass no step by that ends at that time or later. Whether any is to be passed by. To be asked at the start."""
        if until - TIMES_AGREE_S <= self._started_at:
            self._num_steps = 0
        elif not self.ends_before(until):
            self._num_steps = self._estimate(until - TIMES_AGREE_S)
        while self._num_steps and not self.ends_before(until):
            self._num_steps -= 1
        return self._num_steps > 0

    def ends_before(self, until: float) -> bool:
        """Return whether all steps that are passed by end before it, even if they take a little longer."""
        return self._end(self._num_steps - 1) < until - TIMES_AGREE_S

    def end_of_next(self, num_steps: int) -> float:
        """Return when so many more steps will have ended."""
        return self._end(self._num_passed + num_steps - 1)

    def pass_until(self, now: float) -> tuple[int, float]:
        """Return how many steps have ended since the last call, and when the last of them did."""
        num_ended = min(max(self._estimate(now), self._num_passed), self._num_steps)
        while num_ended < self._num_steps and self._end(num_ended) <= now:
            num_ended += 1
        while num_ended > self._num_passed and self._end(num_ended - 1) > now:
            num_ended -= 1
        num_new, self._num_passed = num_ended - self._num_passed, num_ended
        return num_new, self._end(num_ended - 1)

    def _estimate(self, now: float) -> int:
        """How many steps have ended, but for rounding: the root of the sum of their times."""
        elapsed_s, half_s = now - self._started_at, self._growth_s / 2
        linear_s = self._first_s - half_s
        return int(2 * elapsed_s / (linear_s + sqrt(max(0.0, linear_s * linear_s + 4 * half_s * elapsed_s))))

    def land(self) -> None:
        """The running step is the last."""
        self._num_steps = self._num_passed
