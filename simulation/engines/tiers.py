"""Models the KV tiers of a host: what its engines have stored there, and how long it takes to store and load."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from kvtransfer.tiers.block_file import name_of
from kvtransfer.tiers.tier import BEFORE_S, BlocksLoaded, BlocksStored, Tier, TierUse
from mesh.topology.stores import KVTiersSpec
from simulation.engines.physics import Physics

MOST_USES: Final = 4  # of a block, that are remembered
MOST_BEHIND_S = 0.1  # that a disk's writes may be behind: what comes then is not stored there


@dataclass(slots=True)
class SimulatedTier:
    """The blocks in one tier, by name: what each takes, and when it was used."""

    capacity_bytes: int
    used_bytes: int = 0
    writes_until: float = 0.0  # when all is written that was to be
    blocks: dict[str, tuple[int, float]] = field(default_factory=dict)
    _order: list[tuple[float, str]] = field(default_factory=list)  # a heap, with uses that were not the last ones

    def write(self, name: str, num_bytes: int, now: float) -> int:
        """Return how many blocks went for it, those first that were used the longest ago."""
        num_evicted = 0
        while self.used_bytes + num_bytes > self.capacity_bytes and self.blocks:
            self._evict()
            num_evicted += 1
        if self.used_bytes + num_bytes <= self.capacity_bytes:
            self.blocks[name] = num_bytes, now
            self.used_bytes += num_bytes
            heappush(self._order, (now, name))
        return num_evicted

    def _evict(self) -> None:
        while True:
            used_at, name = heappop(self._order)
            block = self.blocks.get(name)
            if block is not None and block[1] == used_at:
                del self.blocks[name]
                self.used_bytes -= block[0]
                return

    def touch(self, name: str, used_at: float) -> None:
        """Note when a block was used, if it is there."""
        block = self.blocks.get(name)
        if block is None:
            return
        self.blocks[name] = block[0], used_at
        heappush(self._order, (used_at, name))
        if len(self._order) > MOST_USES * len(self.blocks):
            self._order = [(used_at, name) for name, (_, used_at) in self.blocks.items()]
            heapify(self._order)


class HostTiers:
    """The tiers of one host, which outlive its engines."""

    def __init__(self, spec: KVTiersSpec, physics: Physics) -> None:
        self.tiers = {Tier.HOST: SimulatedTier(spec.host_bytes)}
        if spec.disk_bytes:
            self.tiers[Tier.DISK] = SimulatedTier(spec.disk_bytes)
        self.physics = physics

    def __repr__(self) -> str:
        parts = ", ".join(f"{tier} {len(one.blocks)} blocks" for tier, one in self.tiers.items())
        return f"<HostTiers {parts}>"


class SimulatedTiers:
    """One service's blocks in the tiers of its engine's host: a `TierIndex`. Each of ``num_devices`` has a way of its
    own to the host's memory.
    """

    def __init__(self, host: HostTiers, space: bytes, block_bytes: int, num_devices: int) -> None:
        self._host = host
        self._space = space
        self._block_bytes = block_bytes
        physics = host.physics
        rates = {Tier.HOST: physics.host_bytes_per_s * num_devices, Tier.DISK: physics.disk_bytes_per_s}
        self._block_s = {tier: physics.tier_block_s + block_bytes / rate for tier, rate in rates.items()}

    def __repr__(self) -> str:
        return f"<SimulatedTiers {self._space.hex()} in {self._host!r}>"

    @property
    def tiers(self) -> Mapping[Tier, int]:
        return {tier: one.capacity_bytes for tier, one in self._host.tiers.items()}

    def find(self, digest: bytes) -> Tier | None:
        """Return the fastest tier that holds the block."""
        return self._find(name_of(self._space, digest))

    def is_in_all(self, digest: bytes) -> bool:
        """Return whether every tier holds the block."""
        name = name_of(self._space, digest)
        return all(name in one.blocks for one in self._host.tiers.values())

    def _find(self, name: str) -> Tier | None:
        return next((tier for tier, one in self._host.tiers.items() if name in one.blocks), None)

    def store_s(self, num_blocks: int) -> float:
        """Return the seconds until so many blocks are in the first tier."""
        return num_blocks * self._block_s[Tier.HOST]

    def load_s(self, digests: Sequence[bytes]) -> float:
        """Return the seconds until these blocks are where they are to be, as far as they are there."""
        return sum([self._block_s[tier] for tier in map(self.find, digests) if tier is not None])

    def store(self, digests: Sequence[bytes], used: Iterable[tuple[bytes, float]], now: float) -> BlocksStored:
        """Let blocks be there, in each tier that keeps up. ``used``: of `StoreBlocks`."""
        uses, touched = {}, [(name_of(self._space, digest), used_at) for digest, used_at in used]
        for tier, one in self._host.tiers.items():
            use = uses[tier] = TierUse()
            new = [name for name in (name_of(self._space, digest) for digest in digests) if name not in one.blocks]
            if tier is not Tier.HOST:
                if one.writes_until > now + MOST_BEHIND_S:
                    use.num_left_out = len(new)
                    continue
                one.writes_until = max(one.writes_until, now) + len(new) * self._block_s[tier]
            use.num_evicted = sum([one.write(name, self._block_bytes, now) for name in new])
            for name, used_at in touched:
                one.touch(name, used_at)
            use.num_blocks, use.num_bytes = len(new), len(new) * self._block_bytes
            use.elapsed_s, use.used_bytes = len(new) * self._block_s[tier], one.used_bytes
        return BlocksStored(uses)

    def load(self, digests: Sequence[bytes], now: float) -> BlocksLoaded:
        """Take blocks that are still there, up to the first that is not."""
        uses: Mapping[Tier, TierUse] = {tier: TierUse() for tier in self._host.tiers}
        for number, digest in enumerate(digests):
            name = name_of(self._space, digest)
            tier = self._find(name)
            if tier is None:
                uses[Tier.HOST].num_faults += 1
                return BlocksLoaded(number, uses)
            self._host.tiers[tier].touch(name, now - number * BEFORE_S)
            uses[tier].num_blocks += 1
            uses[tier].num_bytes += self._block_bytes
            uses[tier].elapsed_s += self._block_s[tier]
        return BlocksLoaded(len(digests), uses)
