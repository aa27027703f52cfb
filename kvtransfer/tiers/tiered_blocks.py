"""One service's blocks in the KV tiers of its engine's host: found, stored and loaded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic, monotonic_ns, perf_counter, time_ns
from typing import Final

import numpy as np
import structlog

from kvtransfer.block_copies import copies_of
from kvtransfer.gpu.device import Bytes
from kvtransfer.gpu.device_memory import DeviceKVMemory
from kvtransfer.memory import KVMemory
from kvtransfer.tiers.block_file import BlockFileError, WrongKeyError, name_of, opened, sealed
from kvtransfer.tiers.folder import BlockFile, TierFolder, Written
from kvtransfer.tiers.tier import BEFORE_S, BlocksLoaded, BlocksStored, Tier, TierUse
from mesh.process.rare_warnings import RareWarnings

TELL_AGAIN_S: Final = 300.0  # after a fault, of another one like it: a disk that is full stays so for a while

NOTHING: Final = Written(0, 0, 0, 0)
TIME_WAS_SET_NS: Final = 10**9
BEFORE_NS: Final = round(1e9 * BEFORE_S)

Used = Iterable[tuple[bytes, float]]  # chain digests, and when each counts as used: seconds of the monotonic clock

log = structlog.get_logger()


@dataclass(slots=True)
class _Load:
    is_stopped: bool = False
    lock: Lock = field(default_factory=Lock)


class TieredBlocks:
    """`find` is for the thread of the engine's node, where `stop` and `generations` are called, too. `store` and `load`
    block, so call them in worker threads. ``space``: of `space_of`.
    """

    def __init__(self, memory: KVMemory | DeviceKVMemory, space: bytes, folders: Mapping[Tier, TierFolder]) -> None:
        self.folders: Final = folders
        self._memory = memory
        self._copies = copies_of(memory)
        self._space = space
        self._loads: dict[int, _Load] = {}
        self._began_ns = 0
        self._telling = Lock()
        self._below: dict[Tier, TierUse] = {}  # that nobody was told of
        self._warnings = RareWarnings(TELL_AGAIN_S)

    def __repr__(self) -> str:
        return f"<TieredBlocks {self._space.hex()} in {[*self.folders.values()]}>"

    @property
    def tiers(self) -> Mapping[Tier, int]:
        return {tier: folder.capacity_bytes for tier, folder in self.folders.items()}

    def find(self, digest: bytes) -> Tier | None:
        """Return the fastest tier with a file of that name."""
        name = name_of(self._space, digest)
        for tier, folder in self.folders.items():
            if folder.has(name):
                return tier
        return None

    def is_in_all(self, digest: bytes) -> bool:
        """Return whether every tier has a file of that name."""
        name = name_of(self._space, digest)
        return all(folder.has(name) for folder in self.folders.values())

    def generations(self, blocks: Sequence[int]) -> list[int]:
        """Return what `store` tells by whether the blocks have got new content meanwhile."""
        return self._memory.generations(blocks)

    def store(
        self, digests: Sequence[bytes], blocks: Sequence[int], generations: Sequence[int], used: Used
    ) -> tuple[BlocksStored, Sequence[BlockFile]]:
        """Store blocks in the first tier. Return the files, too, for `store_below`. Raise `DeviceError` or MemoryError
        if blocks cannot be copied.
        """
        rows = self._copies.read(blocks)
        now = self._memory.generations(blocks)
        names = [name_of(self._space, digest) for digest in digests]
        files = [
            BlockFile(name, sealed(name, row.data))
            for name, row, then, since in zip(names, rows, generations, now, strict=True)
            if then == since
        ]
        first = next(iter(self.folders))
        use = self._write(first, files, used)
        with self._telling:
            below, self._below = self._below, {}
        return BlocksStored({first: use, **below}), files

    def store_below(self, files: Sequence[BlockFile], used: Used) -> None:
        """Store the files in the other tiers. The next `store` tells of it."""
        for tier in [*self.folders][1:]:
            self._note_below(tier, self._write(tier, files, used))

    def leave_out_below(self, num_blocks: int) -> None:
        """The other tiers are behind, and do not get so many blocks. The next `store` tells of it."""
        for tier in [*self.folders][1:]:
            self._note_below(tier, TierUse(num_left_out=num_blocks))

    def _note_below(self, tier: Tier, use: TierUse) -> None:
        with self._telling:
            self._below.setdefault(tier, TierUse()).add(use)

    def _write(self, tier: Tier, files: Sequence[BlockFile], used: Used) -> TierUse:
        started, folder = perf_counter(), self.folders[tier]
        written = folder.write(files) if files else NOTHING
        since_ns = self._clock_began_ns()
        for digest, used_at in used:
            folder.touch(name_of(self._space, digest), since_ns + int(1e9 * used_at))
        if written.num_faults:
            self._warn("could not store KV blocks", tier, why=written.why, blocks=written.num_faults)
        return TierUse(
            written.num_written,
            written.num_bytes,
            perf_counter() - started,
            written.num_evicted,
            written.num_faults,
            used_bytes=folder.used_bytes,
        )

    def _clock_began_ns(self) -> int:
        """Return when the monotonic clock was 0, as files tell time. It stays the same, or an order of microseconds
        would get lost, until somebody sets the time.
        """
        began_ns = time_ns() - monotonic_ns()
        if abs(began_ns - self._began_ns) > TIME_WAS_SET_NS:
            self._began_ns = began_ns
        return self._began_ns

    def _warn(self, event: str, tier: Tier, **facts: object) -> None:
        """Write a line, unless there was one like it a short while ago."""
        with self._telling:
            num_silent = self._warnings.admit(f"{event} {tier} {facts.get('why')}", monotonic())
        if num_silent is not None:
            folder = str(self.folders[tier].path)
            log.warning(event, tier=str(tier), folder=folder, **facts, not_told_before=num_silent)

    def open_load(self, ticket: int) -> None:
        """Begin a load: from now on it may be stopped."""
        self._loads[ticket] = _Load()

    def load(self, ticket: int, digests: Sequence[bytes], blocks: Sequence[int]) -> BlocksLoaded:
        """Write what is stored under ``digests`` to ``blocks``, in order, up to the first that cannot be had. Raise
        `DeviceError` if they cannot be copied.
        """
        load, uses, num_loaded = self._loads[ticket], {tier: TierUse() for tier in self.folders}, 0
        used_ns = time_ns()
        try:
            for digest, block in zip(digests, blocks, strict=True):
                num_faults = _num_faults(uses)
                if not self._load_one(load, digest, block, uses, used_ns - num_loaded * BEFORE_NS):
                    is_damaged = _num_faults(uses) > num_faults
                    self._account_for(load, is_damaged, digests[num_loaded + 1 :], uses)
                    break
                num_loaded += 1
        finally:
            del self._loads[ticket]
        return BlocksLoaded(num_loaded, uses)

    def _load_one(self, load: _Load, digest: bytes, block: int, uses: Mapping[Tier, TierUse], used_ns: int) -> bool:
        for tier, folder in self.folders.items():
            started, use = perf_counter(), uses[tier]
            content = self._read(tier, folder, digest, use)
            if content is None:
                continue
            folder.touch(name_of(self._space, digest), used_ns)
            with load.lock:
                if not (is_late := load.is_stopped):
                    self._copies.write([content], [block])
            use.num_blocks += not is_late
            use.num_bytes += content.nbytes  # what came too late tells how slow the tier is
            use.elapsed_s += perf_counter() - started
            return not is_late
        return False

    def _account_for(
        self, load: _Load, is_damaged: bool, others: Sequence[bytes], uses: Mapping[Tier, TierUse]
    ) -> None:
        """One block of a load is not to be had. If its files were damaged, those of the ``others`` after it may be
        damaged, too: all were written together when a machine lost its power. Look at them now, or each request that
        begins so finds one of them. They come to the tiers anew once they are computed.
        """
        if not is_damaged and not load.is_stopped:
            next(iter(uses.values())).num_faults += 1  # it was there when it was looked for
        for digest in others if is_damaged else ():
            if load.is_stopped:
                return
            for tier, folder in self.folders.items():
                self._read(tier, folder, digest, uses[tier])

    def _read(self, tier: Tier, folder: TierFolder, digest: bytes, use: TierUse) -> Bytes | None:
        """The content of a block; None if this tier does not have it. A file that is not what it should be goes."""
        name, block_bytes = name_of(self._space, digest), self._memory.layout.block_bytes
        try:
            file = folder.read(name)
            if file is not None:
                return np.frombuffer(opened(name, file, block_bytes), np.uint8)
        except WrongKeyError as error:
            use.num_faults += 1
            self._warn("computes what a KV tier has, as its key is not the right one", tier, why=str(error))
            folder.remove(name)
        except (OSError, BlockFileError) as error:
            use.num_faults += 1
            self._warn("dropped a stored KV block", tier, name=name, why=str(error))
            folder.remove(name)
        return None

    def stop(self, ticket: int) -> None:
        """Nothing of that load is written any more once this returns, whatever it waits for."""
        load = self._loads.get(ticket)
        if load is not None:
            with load.lock:
                load.is_stopped = True


def _num_faults(uses: Mapping[Tier, TierUse]) -> int:
    return sum([use.num_faults for use in uses.values()])
