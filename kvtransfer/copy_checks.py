"""Checks for all transports that blocks are what the sender meant: before a copy, after it and at the destination."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Protocol

import structlog

from kvtransfer.protocol import Buffer, ImportBlocks, Imported

log = structlog.get_logger()


class CountedBlocks(Protocol):
    """Blocks of a peer, with the generations that tell whether they were reused."""

    def __len__(self) -> int: ...

    def is_unchanged(self, blocks: Sequence[int], generations: Sequence[int]) -> bool: ...


def copy_unchanged(job: ImportBlocks, pool: CountedBlocks, copy: Callable[[], None]) -> str | None:
    """Copy from the sender's ``pool`` and be finished with it; say what is wrong if it was not what was meant."""
    message = job.message
    if len(message.generations) != len(message.source_blocks) or not all(
        0 <= block < len(pool) for block in message.source_blocks
    ):
        return "block ids or generations make no sense"
    if not pool.is_unchanged(message.source_blocks, message.generations):
        return "blocks were reused before the copy"
    copy()
    if not pool.is_unchanged(message.source_blocks, message.generations):
        return "blocks were reused during the copy"
    return None


def frames_of(job: ImportBlocks, frames: Iterable[Buffer], block_bytes: int) -> list[memoryview] | str:
    """Payload frames as bytes, one a block; or what is wrong with them."""
    views = [memoryview(frame).cast("B") for frame in frames]
    if len(views) != len(job.destinations):
        return f"{len(views)} payload frames for {len(job.destinations)} blocks"
    for view in views:
        if len(view) != block_bytes:
            return f"a payload frame of {len(view)} bytes, want {block_bytes}"
    return views


def checksums(contents: Iterable[Buffer]) -> list[int]:
    return [zlib.crc32(content) for content in contents]


def checksum_fault(job: ImportBlocks, contents: Callable[[], Iterable[Buffer]]) -> str | None:
    """Checked at the destination, so that the copy is covered too. ``contents``: of ``job.destinations`` now."""
    expected = job.message.checksums
    return "checksums differ" if expected and expected != checksums(contents()) else None


def imported(job: ImportBlocks, fault: str | None, started: float) -> Imported:
    """The answer to a job. ``started``: by `perf_counter`."""
    if fault is not None:
        log.warning("dropped KV blocks", transfer=job.transfer, sender=job.peer, transport=job.transport, reason=fault)
    return Imported(job.message.seq, fault is None, perf_counter() - started)
