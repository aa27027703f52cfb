"""The file of one KV block: a header that says whose block it is, and the content, covered by a checksum.

A file is named by a digest of the block's space and chain digest. The space tells blocks of one service, model, dtype
and layout from all others: bytes of another space are never taken, however a file came by its name.
"""

import struct
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from kvtransfer.protocol import Buffer
from mesh.wire.transfers import KVShape

MAGIC: Final = b"MSKVTB01"  # with the version of the format
HEADER: Final = struct.Struct("<8s16s16sQI")  # magic, space, chain digest, bytes of the content, checksum


class BlockFileError(RuntimeError):
    """A file does not hold the block that it is named for. The message says why."""


def space_of(service: str, model: str, dtype: str, shape: KVShape) -> bytes:
    """Return the space of a service's blocks, 16 bytes. ``model``: of `engines.models.identity`; ``dtype``: of its
    weights, which the content depends on as well as on the dtype of KV.
    """
    return blake2b(msgspec.json.encode([service, model, dtype, shape]), digest_size=16).digest()


def name_of(space: bytes, digest: bytes) -> str:
    """Return the name of a block's file, 32 hexadecimal digits."""
    return blake2b(digest, key=space, digest_size=16).hexdigest()


def sealed(space: bytes, digest: bytes, content: Buffer) -> Sequence[Buffer]:
    """Return the parts of a block's file."""
    view = memoryview(content).cast("B")
    return HEADER.pack(MAGIC, space, digest, len(view), _checksum(space, digest, view)), view


def opened(space: bytes, digest: bytes, file: Buffer, block_bytes: int) -> memoryview:
    """Return the content of a block's file. Raise `BlockFileError` unless it is the one that is meant, and whole."""
    view = memoryview(file).cast("B")
    if len(view) != HEADER.size + block_bytes:
        raise BlockFileError(f"{len(view)} bytes, want {HEADER.size + block_bytes}")
    magic, its_space, its_digest, num_bytes, checksum = HEADER.unpack_from(view)
    content = view[HEADER.size :]
    if (magic, its_space, its_digest, num_bytes) != (MAGIC, space, digest, block_bytes):
        raise BlockFileError("it is of another block")
    if checksum != _checksum(space, digest, content):
        raise BlockFileError("checksums differ")
    return content


def _checksum(space: bytes, digest: bytes, content: memoryview) -> int:
    return zlib.crc32(content, zlib.crc32(space + digest))
