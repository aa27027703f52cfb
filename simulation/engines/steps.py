"""Models how long an iteration takes: the engine's cost model, and noise if it is asked for."""

from random import Random

from engines.costs.linear import decode_step_s
from engines.costs.step_cost import StepCost, StepLoad
from simulation.engines.physics import Physics


class StepModel:
    """Models the time of steps. ``between_s`` passes between steps: engines learn no cost from it. ``pace``: steps take
    so many times as long.
    """

    def __init__(self, cost: StepCost, physics: Physics, random: Random) -> None:
        self.between_s = physics.step_s
        self.pace = 1.0
        self._cost = cost
        self._noise = physics.noise
        self._physics = physics
        self._random = random

    def elapsed_s(self, load: StepLoad) -> float:
        """Seconds that an iteration takes."""
        elapsed_s = self.pace * sum(self._cost.parts(load))
        return elapsed_s * self._random.lognormvariate(0.0, self._noise) if self._noise else elapsed_s

    def slowdown(self, load: StepLoad) -> float:
        """Return how many times as long it takes while another engine of the host computes."""
        return self._physics.shared_prefill if load.chunks else self._physics.shared_decode

    def decodes_s(self, num_requests: int, context_tokens: int) -> float:
        """Return the seconds of a step of decodes alone, and until the next one begins, without noise."""
        return self.pace * decode_step_s(self._cost.decode, num_requests, context_tokens) + self.between_s
