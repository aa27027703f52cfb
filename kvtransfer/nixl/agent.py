"""NIXL as KV transfers see it: all that they ask of it, and nothing else.

`kvtransfer.nixl.bindings` is the real one, the only module that knows the package. What is above is tested with a
double of this edge, too (`tests/kvtransfer/nixl/fake_agent.py`).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvtransfer.memory import MemoryUnreachableError
from mesh.wire.transfers import MemoryKind

Addresses = NDArray[np.uint64]


class NixlError(MemoryUnreachableError):
    """NIXL refused, a read failed, or it is late. The message says which."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A kind of memory, and the number of its device (0 for DRAM)."""

    kind: MemoryKind
    number: int = 0


DRAM = Segment("DRAM")


@dataclass(frozen=True, slots=True)
class MemoryPieces:
    """Pieces of memory in one segment, all of ``num_bytes`` bytes, that begin at ``addresses`` [n]."""

    segment: Segment
    addresses: Addresses
    num_bytes: int


class Agent(Protocol):
    """One process's end of NIXL. Any thread may call it; all calls are short and raise `NixlError` on failure."""

    name: str

    def register(self, segment: Segment, address: int, num_bytes: int) -> None:
        """Let this memory be read by other agents, and reads end in it."""

    def metadata(self) -> bytes:
        """Return what other agents need to reach this one. Memory that is registered later is not in it."""

    def connect(self, metadata: bytes) -> str:
        """Take another agent's metadata; return its name."""

    def disconnect(self, name: str) -> None: ...

    def begin(self, name: str, there: MemoryPieces, here: MemoryPieces) -> int:
        """Begin to read pieces of another agent's memory into as many here. Return the read's handle.

        Addresses that the other agent has not registered are refused.
        """

    def is_done(self, read: int) -> bool:
        """Return whether all bytes are here. Raise `NixlError` if the read has failed and is over."""

    def end(self, read: int) -> None:
        """Forget a read that is over."""
