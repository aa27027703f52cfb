"""A GPU as KV transfers see it: all that they ask of CUDA and NCCL, and nothing else.

`kvtransfer.gpu.cuda` is the real one, the only module that knows cupy. Everything above is tested on CPUs with a
double of this edge (`tests/kvtransfer/fake_device.py`).

Work that takes a `Stream` is queued there and done in the stream's order; only `Stream.synchronize` and an `Event` that
is done say that it is finished. All methods may be called from any thread and raise `DeviceError` on failure.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvtransfer.nixl.agent import Segment

MESSAGE_BYTES = 64 * 2**20  # of KV in one `Blocks` message of an engine on a GPU: each costs a launch and two waits

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]


class DeviceError(RuntimeError):
    """The device, its driver or NCCL refused. The message is theirs."""


class Region(Protocol):
    """Memory on a device: allocated here, or opened from another process's handle."""

    @property
    def num_bytes(self) -> int: ...

    @property
    def address(self) -> int:
        """Where it begins, in the addresses of its segment."""


class Event(Protocol):
    def is_done(self) -> bool:
        """Return whether all work that was queued before the event is finished."""


class Stream(Protocol):
    def record(self) -> Event: ...

    def synchronize(self) -> None:
        """Wait until all that was queued here is finished."""


class Communicator(Protocol):
    """One end of an NCCL communicator of two ranks."""

    def connect(self) -> None:
        """Wait for the other rank, however long. Call once, before all but `abort`."""

    def send(self, region: Region, num_bytes: int, stream: Stream) -> None:
        """Queue sending the first bytes of a region to the other rank."""

    def receive(self, region: Region, num_bytes: int, stream: Stream) -> None:
        """Queue receiving so many bytes to the beginning of a region."""

    def abort(self) -> None:
        """End what is queued and give everything back. From any thread, also while another is in `connect`."""


class Device(Protocol):
    """What transfers ask of a GPU. ``name`` as torch says it; ``uuid`` tells GPUs apart across processes and hosts."""

    name: str
    uuid: str
    has_nccl: bool
    allows_two_ranks: bool  # of one communicator on this GPU
    segment: Segment  # of its regions, as NIXL names it

    def allocate(self, num_bytes: int) -> Region:
        """An allocation of its own, zeroed: handles mean whole allocations."""

    def handle(self, region: Region) -> bytes:
        """Return a handle by which another process of this host opens a region that was allocated here."""

    def open(self, handle: bytes, num_bytes: int) -> Region:
        """Map another process's region. A handle that is open already is opened once more."""

    def close(self, region: Region) -> None:
        """Unmap an opened region, once for each `open`, when nothing reads it any more."""

    def stream(self) -> Stream:
        """A new one, beside that which the model is computed on."""

    def pinned(self, num_bytes: int) -> Bytes:
        """Host memory that the device copies from and to at full speed."""

    def zero(self, region: Region, offset: int, num_bytes: int, stream: Stream) -> None: ...

    def to_host(self, region: Region, offset: int, host: Bytes, stream: Stream) -> None:
        """Fill ``host``, which must stay until the stream is synchronised."""

    def to_device(self, host: Bytes, region: Region, offset: int, stream: Stream) -> None: ...

    def copy_pieces(
        self, source: Region, source_at: Offsets, target: Region, target_at: Offsets, piece_bytes: int, stream: Stream
    ) -> None:
        """Copy a piece from each of ``source_at`` [n] to each of ``target_at`` [n] (bytes, multiples of 16)."""

    def unique_id(self) -> bytes:
        """Return an id for a new communicator. Both ranks must have it."""

    def communicator(self, unique_id: bytes, rank: int) -> Communicator: ...
