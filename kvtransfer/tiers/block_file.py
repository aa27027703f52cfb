"""The file of one KV block: a header that repeats the file's name, and the content, covered by a checksum.

A file is named by a keyed digest of the block's chain digest. The key is the space: it tells blocks of one service,
model, dtype and layout from all others. So bytes of another space are never taken, however a file came by its name.
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
ENCRYPTED: Final = b"MSKVTE01"  # begins a file that `kvtransfer.tiers.encryption` wrote
HEADER: Final = struct.Struct("<8s16sQI")  # magic, name, bytes of the content, checksum


class BlockFileError(RuntimeError):
    """A file does not hold the block that it is named for. The message says why."""


class WrongKeyError(BlockFileError):
    """A file was encrypted with another key than the one that is set, or only one of the two has a key."""


def space_of(service: str, model: str, dtype: str, shape: KVShape) -> bytes:
    """Return the space of a service's blocks, 16 bytes. ``model``: of `engines.models.identity`; ``dtype``: of its
    weights, which the content depends on as well as on the dtype of KV.
    """
    return blake2b(msgspec.json.encode([service, model, dtype, shape]), digest_size=16).digest()


def name_of(space: bytes, digest: bytes) -> str:
    """Return the name of a block's file, 32 hexadecimal digits."""
    return blake2b(digest, key=space, digest_size=16).hexdigest()


def file_bytes(block_bytes: int) -> int:
    """Return how long the file of a block is, if it is not encrypted."""
    return HEADER.size + block_bytes


def sealed(name: str, content: Buffer) -> Sequence[Buffer]:
    """Return the parts of a block's file."""
    view = memoryview(content).cast("B")
    return HEADER.pack(MAGIC, bytes.fromhex(name), len(view), _checksum(name, view)), view


def opened(name: str, file: Buffer, block_bytes: int) -> memoryview:
    """Return the content of a block's file. Raise `BlockFileError` unless it is the one that is meant, and whole."""
    view = memoryview(file).cast("B")
    if bytes(view[: len(ENCRYPTED)]) == ENCRYPTED:
        raise WrongKeyError("it is encrypted, and no key is set")
    if len(view) != file_bytes(block_bytes):
        raise BlockFileError("it is shorter or longer than a block")
    magic, its_name, num_bytes, checksum = HEADER.unpack_from(view)
    content = view[HEADER.size :]
    if (magic, its_name, num_bytes) != (MAGIC, bytes.fromhex(name), block_bytes):
        raise BlockFileError("it is of another block")
    if checksum != _checksum(name, content):
        raise BlockFileError("checksums differ")
    return content


def _checksum(name: str, content: memoryview) -> int:
    return zlib.crc32(content, zlib.crc32(name.encode()))
