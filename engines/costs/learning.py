"""Costs that are kept true while serving: a Kalman filter over factors of their terms.

Each of the two costs has two factors: one for what numbers of tokens or requests decide, one for attention. These
two grow with different things and drift apart (another machine's memory, longer contexts than were measured). Every
step teaches: decodes, prompts, and both in one iteration, whose error goes to the factors in proportion to how
uncertain they are. Factors follow a random walk, so that old steps are forgotten, and those of one cost are expected
to move together until steps of different shapes tell them apart.
"""

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field

from engines.costs.step_cost import Parts, StepCost, StepLoad

LARGEST_FACTOR = 8.0
OUTLIER = 1.5  # one step counts as at most this many times slower or faster than predicted
NOISE = 0.01  # variance of a step's relative error
DRIFT = NOISE / 90  # of a factor a step: in the end a step counts for a tenth
COMMON = 0.85  # correlation of the two factors of one cost
NUM_RECENT = 64
FEW = 8
RUN = 16  # steps of decodes: few answers are shorter


@dataclass(slots=True)
class _Factors:
    """Two factors of one cost and their covariance."""

    first: float = 1.0
    second: float = 1.0
    p11: float = NOISE
    p12: float = COMMON * NOISE
    p22: float = NOISE

    def widen(self) -> None:
        """A step passes: what was known becomes less certain, never less than at the start."""
        if self.p11 < NOISE:
            self.p11 = min(self.p11 + DRIFT, NOISE)
        if self.p22 < NOISE:
            self.p22 = min(self.p22 + DRIFT, NOISE)
        self.p12 = min(self.p12 + COMMON * DRIFT, COMMON * NOISE)

    def variance(self, x1: float, x2: float) -> float:
        return x1 * x1 * self.p11 + 2 * x1 * x2 * self.p12 + x2 * x2 * self.p22

    def update(self, x1: float, x2: float, innovation: float, total_variance: float) -> None:
        a, b = self.p11 * x1 + self.p12 * x2, self.p12 * x1 + self.p22 * x2
        self.first = _bounded(self.first + a * innovation / total_variance)
        self.second = _bounded(self.second + b * innovation / total_variance)
        self.p11 -= a * a / total_variance
        self.p12 -= a * b / total_variance
        self.p22 -= b * b / total_variance


@dataclass(slots=True)
class _Recent:
    """Sizes of relative errors of late, also in order. Each is of the mean over a ``run`` of steps."""

    run: int = 1
    of_run: deque[float] = field(default_factory=deque)
    errors: deque[float] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)
    p90: float | None = None  # None: too few

    def add(self, error: float) -> None:
        self.of_run.append(error)
        if len(self.of_run) > self.run:
            self.of_run.popleft()
        size = abs(sum(self.of_run)) / len(self.of_run)
        if len(self.errors) == NUM_RECENT:
            del self.ordered[bisect_left(self.ordered, self.errors.popleft())]
        self.errors.append(size)
        insort(self.ordered, size)
        if len(self.ordered) >= FEW:
            self.p90 = self.ordered[9 * (len(self.ordered) - 1) // 10]


class LearntCost:
    """What was measured beforehand, ``initial``, and what steps have taught since."""

    def __init__(self, initial: StepCost) -> None:
        self._initial = initial
        self._prefill, self._decode = _Factors(), _Factors()
        self._prefill_recent, self._decode_recent = _Recent(), _Recent(RUN)
        self.current = initial
        self.num_steps = 0

    def __repr__(self) -> str:
        prefill, decode = self._prefill, self._decode
        return (
            f"<LearntCost prefill {prefill.first:.3f} {prefill.second:.3f}"
            f" decode {decode.first:.3f} {decode.second:.3f} of {self.num_steps} steps>"
        )

    @property
    def prefill_error(self) -> float | None:
        """90th percentile of |measured / predicted - 1| of recent steps with a prompt; None: too few."""
        return self._prefill_recent.p90

    @property
    def decode_error(self) -> float | None:
        """The same of runs of `RUN` steps of decodes alone: what is promised a token is a mean over an answer, in which
        errors of single steps cancel out.
        """
        return self._decode_recent.p90

    def recall(self, errors: "LearntCost") -> None:
        """Count another's recent errors as one's own: it predicted until now."""
        self._prefill_recent, self._decode_recent = errors._prefill_recent, errors._decode_recent

    def observe(self, load: StepLoad, measured_s: float) -> None:
        """A step of this load took so long. Non-positive times are ignored."""
        parts = self.current.parts(load)
        predicted_s = sum(parts)
        if measured_s <= 0 or predicted_s <= 0:
            return
        self.num_steps += 1
        recent = self._prefill_recent if load.chunks else self._decode_recent
        error = measured_s / predicted_s - 1
        recent.add(error)
        self._update(parts, predicted_s, min(max(error, 1 / OUTLIER - 1), OUTLIER - 1))

    def _update(self, parts: Parts, predicted_s: float, innovation: float) -> None:
        """Shares of the prediction for each unit of their factor weigh how much each factor takes of the error."""
        prefill, decode = self._prefill, self._decode
        tokens = parts.prefill_tokens_s / (prefill.first * predicted_s)
        attention = parts.prefill_attention_s / (prefill.second * predicted_s)
        requests = parts.decode_requests_s / (decode.first * predicted_s)
        context = parts.decode_attention_s / (decode.second * predicted_s)
        prefill.widen()
        decode.widen()
        variance = prefill.variance(tokens, attention) + decode.variance(requests, context) + NOISE
        prefill.update(tokens, attention, innovation, variance)
        decode.update(requests, context, innovation, variance)
        if abs(innovation) > 1e-9:
            self.current = self._corrected()

    def _corrected(self) -> StepCost:
        prefill, decode = self._prefill, self._decode
        return self._initial.scaled(Parts(prefill.first, prefill.second, decode.first, decode.second))


def _bounded(factor: float) -> float:
    return min(max(factor, 1 / LARGEST_FACTOR), LARGEST_FACTOR)
