"""Hears which prefixes a vLLM server keeps: its KV events over ZeroMQ, named as this gateway names prefixes.

vLLM publishes (topic, sequence number, msgpack) for each batch of events. A block has vLLM's own hash, its parent's,
and its token ids. Here it becomes the chained names of `mesh.prefix_names`, so that the prefixes of a prompt
can be looked up wherever they came from. A gap in the sequence, or a block whose parent is not known, loses what
follows: names are then only too few, never wrong.
"""

import asyncio
import hashlib
import struct
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog
import zmq
import zmq.asyncio

from mesh.prefix_names import NAME_BYTES, prefix_end

MAX_BATCH_BYTES: Final = 16 * 2**20
MAX_QUEUED: Final = 4096  # batches that wait to be read
MOST_BLOCKS: Final = 2**16  # that are followed, of one server
DIGEST_BYTES: Final = 32

log = structlog.get_logger()


class BlockStored(msgspec.Struct, tag=True):
    """Blocks are kept, one after the other, the first one behind its parent. vLLM's later fields are not read."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[object] | None] | None = None  # what else than tokens a block's content depends on
    group_idx: int | None = None  # of models with several kinds of attention

    @property
    def is_plain(self) -> bool:
        """Return whether the tokens alone say what the blocks hold."""
        has_extras = self.lora_id is not None or self.lora_name is not None or any(self.extra_keys or ())
        return not has_extras and not self.group_idx


class BlockRemoved(msgspec.Struct, tag=True):
    """Blocks are gone."""

    block_hashes: list[int | bytes]


class AllBlocksCleared(msgspec.Struct, tag=True):
    """The whole cache is empty."""


class _StoredArray(BlockStored, array_like=True, tag="BlockStored"):
    """As it was until vLLM 0.19."""


class _RemovedArray(BlockRemoved, array_like=True, tag="BlockRemoved"):
    """Likewise."""


class _ClearedArray(AllBlocksCleared, array_like=True, tag="AllBlocksCleared"):
    """Likewise."""


class _Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


class _ArrayBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[_StoredArray | _RemovedArray | _ClearedArray]


@dataclass(frozen=True, slots=True)
class PrefixesChanged:
    """Names of blocks that are kept now, and of some that are not any more. ``cleared``: first, all of them went."""

    kept: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    cleared: bool = False


@dataclass(slots=True)
class KvBlocks:
    """The blocks that one server keeps, by its own hashes. A name goes with the block that completes it: servers drop
    the ends of prefixes first.
    """

    next_seq: int | None = None
    blocks: "dict[int | bytes, _Place]" = field(default_factory=dict)

    def take(self, seq: int, body: bytes) -> PrefixesChanged:
        """Take a batch of events. Raises `msgspec.MsgspecError` if it is none."""
        batch = _decode(body)
        cleared = self.next_seq is not None and seq != self.next_seq
        self.next_seq = seq + 1
        kept, gone = list[int](), list[int]()
        if cleared:
            self.blocks.clear()
        for event in batch.events:
            match event:
                case BlockStored():
                    kept += self._store(event)
                case BlockRemoved(hashes):
                    gone += [name for block in hashes for name in self.blocks.pop(block, _START).names]
                case AllBlocksCleared():
                    self.blocks.clear()
                    kept, gone, cleared = [], [], True
        again = set(kept)
        return PrefixesChanged(tuple(kept), tuple(name for name in gone if name not in again), cleared)

    def _store(self, event: BlockStored) -> list[int]:
        """Return the names that are complete with the new blocks. Those of adapters and pictures have none."""
        size = event.block_size
        if size <= 0 or not event.is_plain:
            return []
        place = _START if event.parent_block_hash is None else self.blocks.get(event.parent_block_hash)
        added: list[int] = []
        for index, block in enumerate(event.block_hashes):
            tokens = event.token_ids[index * size : (index + 1) * size]
            if place is None or len(tokens) < size or len(self.blocks) >= MOST_BLOCKS:
                break
            place = self.blocks[block] = place.behind(tokens)
            added += place.names
        return added


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a block ends: tokens up to there, the next prefix and its hash so far, and the names complete with it."""

    hashed: "hashlib.blake2b"
    num_tokens: int = 0
    next_prefix: int = 0  # its index
    names: tuple[int, ...] = ()

    def behind(self, tokens: Sequence[int]) -> "_Place":
        """The place behind these tokens, which follow."""
        hashed, names, start, index = self.hashed.copy(), list[int](), 0, self.next_prefix
        while start < len(tokens):
            missing = prefix_end(index) - self.num_tokens - start
            part = tokens[start : start + missing]
            hashed.update(array("I", [token & 0xFFFFFFFF for token in part]).tobytes())
            start += len(part)
            if len(part) == missing:
                digest = hashed.digest()
                names.append(int.from_bytes(digest[:NAME_BYTES]))
                hashed, index = _hash(digest), index + 1
        return _Place(hashed, self.num_tokens + len(tokens), index, tuple(names))


def _hash(before: bytes) -> "hashlib.blake2b":
    return hashlib.blake2b(before, digest_size=DIGEST_BYTES)


_START = _Place(_hash(b""))
_decoder = msgspec.msgpack.Decoder(_Batch)
_array_decoder = msgspec.msgpack.Decoder(_ArrayBatch)


def _decode(body: bytes) -> _Batch | _ArrayBatch:
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError:
        return _array_decoder.decode(body)


class KvEvents:
    """Listens to one server. ``changed`` is called in the event loop for each batch that says something."""

    def __init__(self, endpoint: str, changed: Callable[[PrefixesChanged], None]) -> None:
        self._endpoint = endpoint
        self._changed = changed
        self._blocks = KvBlocks()
        self.num_malformed = 0

    def __repr__(self) -> str:
        return f"<KvEvents of {self._endpoint}: {len(self._blocks.blocks)} blocks>"

    async def run(self) -> None:
        """Listen and never return; cancel it. What is no batch of events is counted and dropped."""
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, MAX_QUEUED)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_BATCH_BYTES)
        socket.subscribe(b"")
        try:
            socket.connect(self._endpoint)
            while True:
                self._take(await socket.recv_multipart())
                await asyncio.sleep(0)
        finally:
            with suppress(zmq.ZMQError):
                socket.close()
            context.destroy(linger=0)

    def _take(self, frames: Sequence[bytes]) -> None:
        try:
            _, seq, body = frames
            (number,) = struct.unpack(">Q", seq)
            changed = self._blocks.take(number, body)
        except (ValueError, struct.error, msgspec.MsgspecError) as error:
            self.num_malformed += 1
            if self.num_malformed == 1:
                log.warning("KV events that are none", endpoint=self._endpoint, reason=str(error)[:200])
            return
        if changed != PrefixesChanged():
            self._changed(changed)
