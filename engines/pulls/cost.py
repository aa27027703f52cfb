"""Predicts how long blocks take to come from another engine, and learns it from what pulls took. Pure."""

from dataclasses import dataclass
from typing import Final

KEPT: Final = 3 / 4  # of what was known, when a pull ends
START_S: Final = 5e-3  # until the first block moves: two messages each way, and the peer's look into its tiers
BYTES_PER_S: Final = 10e9  # until pulls have shown it: what is never tried is never known
LEAST_BYTE_S: Final = 1e-12  # nothing is faster
VALID_S: Final = 600.0  # what was learnt counts for so long after the last pull


@dataclass(slots=True)
class PullCost:
    """Predicts the pulls of one engine, from whichever peer. Pulls that run at a time share the link."""

    _byte_s: float | None = None
    _learnt_at: float = 0.0

    def byte_s(self, now: float) -> float:
        """Return the predicted seconds a byte, once blocks move."""
        is_known = self._byte_s is not None and now < self._learnt_at + VALID_S
        return self._byte_s if is_known and self._byte_s is not None else 1 / BYTES_PER_S

    def seconds(self, num_bytes: int, bytes_ahead: int, now: float) -> float:
        """Return the predicted seconds of a pull. ``bytes_ahead``: of the pulls that run."""
        return START_S + (num_bytes + bytes_ahead) * self.byte_s(now)

    def learn(self, num_bytes: int, bytes_ahead: int, elapsed_s: float, now: float) -> None:
        """Correct later predictions by a pull that brought all of ``num_bytes``."""
        byte_s = max(LEAST_BYTE_S, (elapsed_s - START_S) / (num_bytes + bytes_ahead))
        self._set(byte_s if self._byte_s is None else KEPT * self.byte_s(now) + (1 - KEPT) * byte_s, now)

    def learn_at_least(self, num_bytes: int, bytes_ahead: int, elapsed_s: float, now: float) -> None:
        """Note that in this time they had not come."""
        byte_s = (elapsed_s - START_S) / (num_bytes + bytes_ahead)
        if byte_s > self.byte_s(now):
            self._set(byte_s, now)

    def _set(self, byte_s: float, now: float) -> None:
        self._byte_s, self._learnt_at = byte_s, now
