"""Predicts how long blocks take to come out of a KV tier, and learns it from what copies took."""

from dataclasses import dataclass
from typing import Final

from kvtransfer.tiers.tier import TierUse

KEPT: Final = 7 / 8  # of what was known, when a copy ends
FILE_S: Final = 1e-4  # of each block, whatever its size
BYTES_PER_S: Final = 10e9  # until copies have shown it: what is never tried is never known


@dataclass(slots=True)
class LoadCost:
    """Predicts the loads of one tier. Stores count as loads do: where loads seem too slow, nothing else would tell that
    they are fast again.
    """

    _byte_s: float | None = None

    def seconds(self, num_blocks: int, block_bytes: int) -> float:
        byte_s = 1 / BYTES_PER_S if self._byte_s is None else self._byte_s
        return num_blocks * (FILE_S + block_bytes * byte_s)

    def learn(self, use: TierUse) -> None:
        """Correct later predictions by what a copy took."""
        if use.num_bytes:
            byte_s = max(0.0, use.elapsed_s - FILE_S * use.num_blocks) / use.num_bytes
            self._byte_s = byte_s if self._byte_s is None else KEPT * self._byte_s + (1 - KEPT) * byte_s
