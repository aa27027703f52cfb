"""What the placement daemon of a simulated mesh decided and carried out, heard from its statuses."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from mesh.wire.frames import Sender
from mesh.wire.placement import Decision, PlacementStatus
from simulation.cluster import Simulation


class Told(msgspec.Struct, frozen=True):
    """A decision, and when it was made."""

    at_s: float
    decision: Decision


class Change(msgspec.Struct, frozen=True):
    """A plan that was carried out: from when to when."""

    plan: int
    from_s: float
    until_s: float


class PlacementLog:
    """Call `attach` before the simulation runs."""

    def __init__(self) -> None:
        self.decisions: list[Told] = []
        self.changes: list[Change] = []
        self._num_changes = 0

    def attach(self, simulation: Simulation) -> None:
        def hear(_: Sender, status: PlacementStatus) -> None:
            self._hear(status, simulation.kernel.now)

        simulation.network.watch("watch", PlacementStatus, hear)

    def _hear(self, status: PlacementStatus, now: float) -> None:
        decision = status.decision
        if decision is not None and (not self.decisions or self.decisions[-1].decision != decision):
            self.decisions.append(Told(now - status.decision_age_s, decision))
        if status.changes_total > self._num_changes:
            self._num_changes = status.changes_total
            self.changes.append(Change(status.plan, now - status.decision_age_s, now - status.made_age_s))


def verdicts(decisions: Sequence[Told]) -> str:
    """How often each was reached, the most frequent first."""
    counts = Counter(told.decision.verdict for told in decisions)
    return ", ".join(f"{verdict}: {number}" for verdict, number in counts.most_common())
