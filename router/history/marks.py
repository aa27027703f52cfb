"""Keeps for the placement daemon what a gateway had counted when the running interval began."""

from collections.abc import Sequence

from mesh.wire.placement import PlacementStatus
from mesh.wire.status import Mark, Memory, ServiceTally


class MarkKeeper:
    """Keeps the marks of one gateway. It knows the last thing that a daemon said until a later one says more."""

    def __init__(self) -> None:
        self.heard: PlacementStatus | None = None
        self.heard_at = 0.0
        self._memory: Memory | None = None
        self._began_at = 0.0
        self._counted: list[ServiceTally] = []

    def __repr__(self) -> str:
        return f"<MarkKeeper {self._memory!r}>"

    def hear(self, status: PlacementStatus, counted: Sequence[ServiceTally], now: float) -> None:
        """Take what a daemon says. ``counted``: what this gateway has counted until now."""
        self.heard, self.heard_at = status, now
        memory, known = status.memory, self._memory
        if memory is None or (known is not None and memory.interval < known.interval):
            return
        if known is None or memory.interval > known.interval:
            self._began_at = now - status.interval_age_s
            self._counted = list(counted)
        self._memory = memory

    def mark(self, now: float) -> Mark | None:
        """Return the mark to repeat in each status; None: there is no daemon."""
        return None if self._memory is None else Mark(self._memory, now - self._began_at, self._counted)
