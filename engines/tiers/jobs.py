"""Stores and loads in worker threads: what an engine's shell does for the effects about KV tiers."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import structlog

from engines.effects import LoadBlocks, StoreBlocks
from kvtransfer.tiers.tier import BlocksLoaded, BlocksStored
from kvtransfer.tiers.tiered_blocks import TieredBlocks

MOST_BELOW: Final = 8  # stores that slower tiers may be behind: what comes then is not stored there

log = structlog.get_logger()


class TierJobs:
    """One thread stores in the first tier, one in those below, and one loads: no request waits for what is stored, and
    no store for a slow disk. Whatever goes wrong, serving goes on.
    """

    def __init__(self) -> None:
        self._storing = ThreadPoolExecutor(1, "store")
        self._storing_below = ThreadPoolExecutor(1, "store below")
        self._loading = ThreadPoolExecutor(1, "load blocks")
        self._num_below = 0  # stores that wait or run there

    def __repr__(self) -> str:
        return f"<TierJobs at {id(self):#x}>"

    def close(self) -> None:
        """Wait for nothing: what is half written is nobody's."""
        for threads in (self._storing, self._storing_below, self._loading):
            threads.shutdown(wait=False, cancel_futures=True)

    async def store(self, tiers: TieredBlocks, job: StoreBlocks, generations: Sequence[int]) -> BlocksStored:
        """``generations``: of the blocks when they were to be stored. What is reused by now is left out."""
        store = partial(tiers.store, job.digests, job.blocks, generations, job.used)
        try:
            stored, files = await asyncio.get_running_loop().run_in_executor(self._storing, store)
        except Exception:
            log.exception("KV blocks could not be stored")
            return BlocksStored({})
        if self._num_below >= MOST_BELOW:
            tiers.leave_out_below(len(files))
        elif len(tiers.tiers) > 1:
            self._num_below += 1
            below = asyncio.get_running_loop().run_in_executor(self._storing_below, tiers.store_below, files, job.used)
            below.add_done_callback(self._stored_below)
        return stored

    def _stored_below(self, _: "asyncio.Future[None]") -> None:
        self._num_below -= 1

    async def load(self, tiers: TieredBlocks, job: LoadBlocks) -> BlocksLoaded:
        """Load blocks until the first that cannot be had, or until `TieredBlocks.stop`."""
        load = partial(tiers.load, job.ticket, job.digests, job.blocks)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._loading, load)
        except Exception:
            log.exception("KV blocks could not be loaded")
            return BlocksLoaded(0, {})
