"""Detects a stuck engine step: compares its duration with the prediction. Pure.

A slow step is not a hanging one: the first step of a service may compile, and a machine that swaps makes everything
slow. So only time counts in which this process was seen to run, the bounds are wide of what steps take, and where steps
were late of late, patience is longer: a false alarm doubles it.
"""

from collections.abc import Callable

LEAST_S = 1.0
FIRST_LEAST_S = 120.0  # of a service that has not computed anything yet
FACTOR = 20.0  # beyond the prediction
LATE_FACTOR = 2.0  # beyond what a step took that was late
FORGET = 0.99  # of that, with each step that was not


class StepWatch:
    """Watches the running step. `look` at it with every status. A gap between looks counts as ``longest_gap_s`` at
    most.
    """

    def __init__(self, longest_gap_s: float) -> None:
        self._longest_gap_s = longest_gap_s
        self._service: str | None = None  # whose step is running
        self._predict: Callable[[], float] = float
        self._age_s = 0.0
        self._looked_at = 0.0
        self._late_s = 0.0  # that a recent step took beyond the prediction
        self._has_computed: set[str] = set()

    def __repr__(self) -> str:
        return f"<StepWatch {self._service} for {self._age_s:.1f} s>"

    def start(self, service: str, predict: Callable[[], float], now: float) -> None:
        """Note that a step begins. ``predict`` returns its seconds; it is called only if the step takes long."""
        self._service, self._predict = service, predict
        self._age_s, self._looked_at = 0.0, now

    def repeat(self, now: float) -> None:
        """Note that steps like the running one have ended, and the next of them begins."""
        self._age_s, self._looked_at = 0.0, now

    def end(self, now: float) -> None:
        """Note that the step was computed, or failed."""
        if self._service is None:
            return
        self._pass(now)
        self._late_s *= FORGET
        if self._service in self._has_computed and self._age_s > LEAST_S / LATE_FACTOR:
            self._late_s = max(self._late_s, self._age_s - self._predict())
        self._has_computed.add(self._service)
        self._service = None

    def look(self, now: float) -> str | None:
        """Return why the running step counts as one that hangs; None: it does not, or none runs."""
        if self._service is None:
            return None
        self._pass(now)
        if self._age_s < LEAST_S:
            return None
        predicted_s = self._predict()
        least_s = LEAST_S if self._service in self._has_computed else FIRST_LEAST_S
        if self._age_s < max(least_s, FACTOR * predicted_s, predicted_s + LATE_FACTOR * self._late_s):
            return None
        return f"a step of {self._service} has been running for {self._age_s:.1f} s, predicted {predicted_s:.3f} s"

    def _pass(self, now: float) -> None:
        self._age_s += min(now - self._looked_at, self._longest_gap_s)
        self._looked_at = now
