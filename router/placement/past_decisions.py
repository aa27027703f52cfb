"""Keeps what the placement daemon has decided and changed so far, as its log and its statuses tell it."""

from collections import Counter
from typing import Any

from mesh.wire.placement import Decision
from router.placement.change.replacement import Verdict
from router.placement.effects import Effect, Note


class PastDecisions:
    """What the daemon has decided so far. ``error`` is the last problem, until something goes well."""

    def __init__(self, now: float) -> None:
        self.error: str | None = None
        self._decision: Decision | None = None
        self._decided_at = now
        self._made: Decision | None = None
        self._made_at = now
        self._verdicts: Counter[str] = Counter()
        self._num_changes, self._num_failed = 0, 0

    def __repr__(self) -> str:
        return f"<PastDecisions {dict(self._verdicts)}, {self._num_changes} changes, {self._num_failed} failed>"

    def told(self, now: float) -> dict[str, Any]:
        """Return the fields of `PlacementStatus`."""
        return {
            "decision": self._decision,
            "decision_age_s": now - self._decided_at,
            "made": self._made,
            "made_age_s": now - self._made_at,
            "decisions_total": dict(self._verdicts),
            "changes_total": self._num_changes,
            "changes_failed_total": self._num_failed,
            "error": self.error,
        }

    def decide(self, decision: Decision, now: float) -> list[Effect]:
        """Returns what is new in it, for the log."""
        last = self._decision
        is_news = last is None or decision.verdict == Verdict.REPLACE or decision.reason != last.reason
        self._decision, self._decided_at = decision, now
        self._verdicts[decision.verdict] += 1
        if not is_news:
            return []
        lines = [f"interval {decision.interval}: {decision.verdict}: {decision.reason}", *decision.homeless]
        return [Note(line) for line in lines]

    def change(self, decision: Decision | None, now: float) -> None:
        """A plan is carried out, which came of this decision if it was the daemon's own."""
        self._num_changes += 1
        self._made, self._made_at, self.error = decision, now, None

    def give_up_change(self) -> None:
        self._num_failed += 1

    def fail(self, problem: str) -> list[Effect]:
        self.error = problem
        return [Note(problem, is_problem=True)]
