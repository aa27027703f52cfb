"""How long an iteration takes: the engine's cost model, and noise if it is asked for."""

from random import Random

from engines.batch import Batch
from engines.costs import decode_step_s
from engines.step_cost import StepCost


class StepModel:
    """``noise`` is the standard deviation of the logarithm of a factor drawn anew for each step.

    ``between_s`` passes between steps: the engine's process learns no cost from it.
    """

    def __init__(self, cost: StepCost, noise: float, random: Random, between_s: float = 0.0) -> None:
        self.between_s = between_s
        self._cost = cost
        self._noise = noise
        self._random = random

    @property
    def is_exact(self) -> bool:
        """Whether equal batches take equal times."""
        return not self._noise

    def elapsed_s(self, batch: Batch) -> float:
        """Seconds that the batch takes."""
        elapsed_s = self._cost.elapsed_s(batch)
        return elapsed_s * self._random.lognormvariate(0.0, self._noise) if self._noise else elapsed_s

    def decodes_s(self, num_requests: int, context_tokens: int) -> float:
        """Of a step of decodes alone, and until the next one begins, without noise."""
        return decode_step_s(self._cost.decode, num_requests, context_tokens) + self.between_s
