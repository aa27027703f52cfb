"""Names the KV tiers, how an engine asks which of them holds a block, and what comes of loads and stores."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

BEFORE_S: Final = 1e-6  # a block counts as used so long before the one that it follows, without which it is of no use


class Tier(StrEnum):  # the fastest first
    """A place below the pools of engines where blocks are kept."""

    HOST = "host"  # the memory of the host, which its engines share
    DISK = "disk"  # one of the host's, likewise


class TierIndex(Protocol):
    """Knows what the tiers hold of one service's blocks. It answers at once, and may be wrong: see `BlocksLoaded`."""

    @property
    def tiers(self) -> Mapping[Tier, int]:
        """Return those that there are, the fastest first, and the bytes that each holds at most."""

    def find(self, digest: bytes) -> Tier | None:
        """Return the fastest tier that holds the block of this chain digest; None: none does."""

    def is_in_all(self, digest: bytes) -> bool:
        """Return whether every tier holds that block."""


@dataclass(slots=True)
class TierUse:
    """What was done with one tier. ``num_faults``: files that vanished or were not what they should be, and writes that
    failed. ``num_left_out``: blocks that were not written, as the tier was behind.
    """

    num_blocks: int = 0
    num_bytes: int = 0
    elapsed_s: float = 0.0
    num_evicted: int = 0
    num_faults: int = 0
    num_left_out: int = 0
    used_bytes: int = 0  # of the tier, by all engines, when this engine stored last

    def add(self, use: "TierUse") -> None:
        """Count what was done after this."""
        self.num_blocks += use.num_blocks
        self.num_bytes += use.num_bytes
        self.elapsed_s += use.elapsed_s
        self.num_evicted += use.num_evicted
        self.num_faults += use.num_faults
        self.num_left_out += use.num_left_out
        self.used_bytes = use.used_bytes or self.used_bytes


@dataclass(frozen=True, slots=True)
class BlocksLoaded:
    """What a load came to: the first ``num_blocks`` are where they were to be. Who wanted them computes the rest."""

    num_blocks: int
    uses: Mapping[Tier, TierUse]


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """What a store came to. Blocks that got new content before they were copied are in none of the numbers."""

    uses: Mapping[Tier, TierUse]
