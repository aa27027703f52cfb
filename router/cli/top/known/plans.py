"""The placement daemon's status and decisions, as far as ``mesh top`` shows them."""

from dataclasses import dataclass

from mesh.wire.placement import PlacementStatus
from router.cli.top.words import clean


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """What the daemon does. ``decides_at``: when it decides next, at the earliest."""

    seq: int
    state: str
    mode: str
    doing: str
    plan: int
    decides_at: float
    num_changes: int
    num_failed: int
    problem: str


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """What the daemon made of an interval. ``num_loads``: copies of weights that the change takes."""

    interval: int
    at: float
    verdict: str
    reason: str
    num_loads: int


def placement_row(status: PlacementStatus, now: float) -> PlacementRow:
    return PlacementRow(
        status.seq,
        str(status.state),
        clean(status.mode),
        clean(status.doing),
        status.plan,
        now + status.next_decision_s,
        status.changes_total,
        status.changes_failed_total,
        clean(status.error or ""),
    )


def decision_row(status: PlacementStatus, now: float) -> DecisionRow | None:
    """Return the last decision; None: there is none yet."""
    decision = status.decision
    if decision is None:
        return None
    return DecisionRow(
        decision.interval,
        now - status.decision_age_s,
        clean(decision.verdict),
        clean(decision.reason),
        decision.num_loads,
    )
