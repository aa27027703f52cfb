"""Decides how long until services are placed anew (SeaLLM, equation 8), and whether a new plan is worth it."""

from dataclasses import dataclass

from mesh.topology.schema import PlacementSpec
from router.placement.search.score import Score

BETA = 0.1


class ReplacementInterval:
    """Shorter by a tenth where the estimate was wrong by more than a tenth, else longer by a tenth.

    The paper sets no bounds; ``least_s`` is what a search and a change take, ``most_s`` keeps it able to notice.
    """

    def __init__(self, initial_s: float, least_s: float, most_s: float, beta: float = BETA) -> None:
        if not 0 < beta < 1:
            raise ValueError(f"beta is {beta}; it lies between 0 and 1")
        if not 0 < least_s <= initial_s <= most_s:
            raise ValueError(f"an interval of {initial_s} s is not between {least_s} and {most_s} s")
        self._least_s = least_s
        self._most_s = most_s
        self._beta = beta
        self.seconds = initial_s
        self.estimate: float | None = None  # of the normalised latency in the running interval; None: there is none

    def __repr__(self) -> str:
        return f"<ReplacementInterval {self.seconds:.1f} s>"

    def achieved(self, normalized_latency: float) -> float:
        """Take what the interval really brought. Return the length of the next one, which has no estimate yet."""
        if self.estimate is not None:
            differs = abs(normalized_latency - self.estimate) > self._beta * self.estimate
            self.set(self.seconds * (1 - self._beta if differs else 1 + self._beta))
        self.estimate = None
        return self.seconds

    def set(self, seconds: float) -> None:
        """Set the interval as near to it as the bounds allow."""
        self.seconds = min(max(seconds, self._least_s), self._most_s)


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a change must bring, for the traffic of an interval, lest plans change with the noise of traffic.

    ``min_gain``: of attainment. Where attainments are that close, normalised latency must fall to
    ``max_latency_ratio`` of what it is. Each copy of weights that is loaded counts as so many late requests as its
    service gets in ``load_s``, and engines that give their devices to others as those that they get in ``regroup_s``.
    """

    min_gain: float = 0.02
    max_latency_ratio: float = 0.7
    load_s: float = 1.0
    regroup_s: float = 10.0

    @classmethod
    def of(cls, spec: PlacementSpec) -> "Threshold":
        return cls(spec.min_gain, spec.max_latency_ratio, spec.load_s, spec.regroup_s)

    def is_worth(self, present: Score, wanted: Score, loaded_rate: float, paused_rate: float = 0.0) -> bool:
        """Return whether a plan is worth the change. ``loaded_rate``: requests a second of the copies that would be
        loaded; ``paused_rate``: of engines that give their devices to others. Scores are of the same traffic.
        """
        if not present.num_requests:
            return False
        gain = self.gain(present, wanted, loaded_rate, paused_rate)
        if gain > self.min_gain:
            return True
        is_faster = wanted.normalized_latency < self.max_latency_ratio * present.normalized_latency
        return is_faster and gain >= 0

    def gain(self, present: Score, wanted: Score, loaded_rate: float, paused_rate: float = 0.0) -> float:
        """Return the gain of attainment, less what the change costs of it. Nothing, where there are no requests."""
        if not present.num_requests:
            return 0.0
        num_late = loaded_rate * self.load_s + paused_rate * self.regroup_s
        return wanted.attainment - present.attainment - num_late / present.num_requests
