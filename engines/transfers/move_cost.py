"""Learns what a migration costs, as this engine's own ones took: how long it lasts, and for how long its request stops.

Most of a request's blocks are copied while it decodes, and it stops for the last of them only
(docs/concepts/migration.md). So a migration lasts longer the more tokens there are to copy, and the stop is much the
same for all.
"""

from dataclasses import dataclass

KEPT = 0.8  # of what was known, when one more migration has ended
FIRST_STOP_S = 0.02  # until one has
FIRST_S_PER_TOKEN = 1e-4  # likewise


@dataclass(frozen=True, slots=True)
class MoveCost:
    """``takes_s``: seconds from its beginning to its end. ``stops_s``: those of them in which the request stands
    still.
    """

    takes_s: float
    stops_s: float


class MoveCosts:
    """Means over the last migrations, of which each newer one counts more."""

    def __init__(self) -> None:
        self._s_per_token = FIRST_S_PER_TOKEN
        self._stops_s = FIRST_STOP_S
        self._num_seen = 0

    def __repr__(self) -> str:
        return f"<MoveCosts {self._s_per_token * 1e6:.1f} us a token, stops {self._stops_s * 1e3:.1f} ms>"

    def observe(self, num_tokens: int, took_s: float, stopped_s: float) -> None:
        """A request of ``num_tokens`` has moved."""
        kept = KEPT if self._num_seen else 0.0
        self._num_seen += 1
        self._s_per_token = kept * self._s_per_token + (1 - kept) * took_s / max(1, num_tokens)
        self._stops_s = kept * self._stops_s + (1 - kept) * stopped_s

    def predict(self, num_tokens: int) -> MoveCost:
        """Return what it will cost to move a request of ``num_tokens``."""
        return MoveCost(self._s_per_token * num_tokens + self._stops_s, self._stops_s)
