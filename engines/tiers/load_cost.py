"""Predicts how long blocks take to come out of a KV tier, and learns it from what they took."""

from dataclasses import dataclass
from typing import Final

from kvtransfer.tiers.tier import Tier, TierUse

KEPT: Final = 7 / 8  # of what was known, when a load ends
FILE_S: Final = 1e-4  # of each block, whatever its size
BYTES_PER_S: Final = {Tier.HOST: 1e9}  # until loads have shown it


@dataclass(slots=True)
class LoadCost:
    """Predicts the loads of one tier."""

    byte_s: float

    @classmethod
    def of(cls, tier: Tier) -> "LoadCost":
        return cls(1 / BYTES_PER_S[tier])

    def seconds(self, num_blocks: int, block_bytes: int) -> float:
        return num_blocks * (FILE_S + block_bytes * self.byte_s)

    def learn(self, use: TierUse) -> None:
        """Correct later predictions by what a load took."""
        if use.num_bytes:
            byte_s = max(0.0, use.elapsed_s - FILE_S * use.num_blocks) / use.num_bytes
            self.byte_s = KEPT * self.byte_s + (1 - KEPT) * byte_s
