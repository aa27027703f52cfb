"""The highest rate at which a share of the requests meets its SLO: `find_capacity` with enough requests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.load.results.confidence import Seen, Verdict
from mesh.errors import UserError
from simulation.capacity import FoundCapacity, find_capacity


@dataclass(frozen=True, slots=True)
class Trial:
    """What one run at a rate came to. ``figures`` are the run's own."""

    num_good: int
    num_requests: int
    figures: Mapping[str, Any] = field(default_factory=dict)


Measure = Callable[[float, int], Trial]  # (rate, number of the trial)


@dataclass(frozen=True, slots=True)
class Goal:
    """``attainment`` is to be kept. A rate gets ``most_trials`` until it is clear with this ``confidence``."""

    attainment: float
    confidence: float = 0.95
    precision: float = 0.1
    most_trials: int = 3
    most_rates: int = 16


@dataclass(slots=True)
class Sweep:
    """One system. ``seen`` grows while it runs: an interrupted sweep tells what it has."""

    goal: Goal
    measure: Measure
    say: Callable[[str], None] = lambda words: None
    seen: dict[float, Seen] = field(default_factory=dict)
    figures: dict[float, Mapping[str, Any]] = field(default_factory=dict)  # of the last trial at each rate
    num_trials: int = 0
    found: FoundCapacity | None = None

    def run(self, first_rate: float) -> None:
        goal = self.goal
        self.found = find_capacity(self._attainment_at, goal.attainment, first_rate, goal.precision, goal.most_rates)

    def _attainment_at(self, rate: float) -> float:
        for _ in range(self.goal.most_trials):
            trial = self.measure(rate, self.num_trials)
            if not trial.num_requests:
                raise UserError(f"at {rate:g} requests a second nothing was measured; send more requests")
            self.num_trials += 1
            seen = self.seen.get(rate, Seen(rate)).plus(trial.num_good, trial.num_requests)
            self.seen[rate], self.figures[rate] = seen, trial.figures
            verdict = self.verdict(rate)
            self.say(f"{rate:.3g} requests/s: {seen.attainment:.1%} of {seen.num_requests}, {verdict}")
            if verdict is not Verdict.OPEN:
                break
        return self.seen[rate].attainment

    def verdict(self, rate: float) -> Verdict:
        return self.seen[rate].verdict(self.goal.attainment, self.goal.confidence)

    def words(self) -> str:
        """The capacity, and what is sure of it."""
        if self.found is None:
            return "interrupted"
        words = f"{self.found.words(self.goal.attainment)} requests/s"
        kept = self._rates(Verdict.KEPT)
        broken = [rate for rate in self._rates(Verdict.BROKEN) if not kept or rate > kept[-1]]
        sure = [f"at least {kept[-1]:.3g}"] if kept else []
        sure += [f"below {broken[0]:.3g}"] if broken else []
        return f"{words} ({self.goal.confidence:.0%} sure: {', '.join(sure)})" if sure else words

    def _rates(self, verdict: Verdict) -> list[float]:
        return sorted(rate for rate in self.seen if self.verdict(rate) is verdict)

    def json(self) -> dict[str, Any]:
        return {
            "capacity": None if self.found is None else self.found.rate,
            "is_beyond": self.found is not None and self.found.is_beyond(self.goal.attainment),
            "points": [self._point(rate) for rate in sorted(self.seen)],
        }

    def _point(self, rate: float) -> dict[str, Any]:
        seen = self.seen[rate]
        low, high = seen.interval(self.goal.confidence)
        figures = self.figures[rate]
        kept = (
            "request_throughput",
            "output_throughput",
            "median_ttft_ms",
            "p99_ttft_ms",
            "median_tpot_ms",
            "p99_tpot_ms",
        )
        return {
            "rate": rate,
            "requests": seen.num_requests,
            "attainment": seen.attainment,
            "low": low,
            "high": high,
            "verdict": str(self.verdict(rate)),
            **{key: figures.get(key) for key in kept},
        }

    def line(self) -> Sequence[tuple[float, float, float, float]]:
        """Rates, attainments and their intervals, for plots."""
        points = self.json()["points"]
        return [(point["rate"], point["attainment"], point["low"], point["high"]) for point in points]
