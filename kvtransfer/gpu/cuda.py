"""`kvtransfer.gpu.device` on NVIDIA GPUs, by cupy: the one module that knows it. Extra ``gpu``.

Regions are allocations of ``cudaMalloc``, not of a caching allocator. Torch and cupy work in the same (primary) context
of a device, so pointers mean the same to both. Every call names its device first: CUDA keeps the current one by thread.

Blocks are gathered and scattered by a kernel of a dozen lines. Torch's index operations would read and write every
byte twice, through a temporary tensor, and so could reach half of the bandwidth of a copy at most.
"""

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cupy
import numpy as np
from cupy.cuda import nccl, runtime

from kvtransfer.gpu.device import Bytes, Communicator, Device, DeviceError, Offsets, Region, Stream
from kvtransfer.nixl.agent import Segment

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # with the PCI address it names a GPU, in containers, too
THREADS = 256
WORDS_A_THREAD = 8  # of 16 bytes
MULTI_RANK_VERSION = 23200  # of NCCL: the one that was seen to know NCCL_MULTI_RANK_GPU_ENABLE

COPY_PIECES = r"""
extern "C" __global__ void copy_pieces(
    const char* source, char* target, const long long* source_at, const long long* target_at, long long words)
{
    const uint4* from = reinterpret_cast<const uint4*>(source + source_at[blockIdx.y]);
    uint4* to = reinterpret_cast<uint4*>(target + target_at[blockIdx.y]);
    const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += stride)
        to[i] = from[i];
}
"""
MOST_PIECES = 65535  # in one launch: the largest grid in y
COPY_BLOCKS = 4096  # thread blocks of a launch, about: enough to fill any GPU


@cache
def _kernel() -> "cupy.RawKernel":
    return cupy.RawKernel(COPY_PIECES, "copy_pieces")


def grid(num_pieces: int, piece_bytes: int) -> tuple[int, int]:
    """Thread blocks in x (a piece) and y (pieces) of `COPY_PIECES`."""
    words = piece_bytes // 16
    useful = -(-words // (THREADS * WORDS_A_THREAD))
    return max(1, min(useful, -(-COPY_BLOCKS // num_pieces))), num_pieces


@dataclass(frozen=True, eq=False)
class CudaRegion:
    pointer: int
    num_bytes: int

    @property
    def address(self) -> int:
        return self.pointer


@dataclass(frozen=True, slots=True)
class CudaEvent:
    event: "cupy.cuda.Event"

    def is_done(self) -> bool:
        with _errors():
            return bool(self.event.done)


class CudaStream:
    def __init__(self, device: "cupy.cuda.Device") -> None:
        self._device = device
        with device:
            self.stream = cupy.cuda.Stream(non_blocking=True)

    def record(self) -> CudaEvent:
        with _errors(), self._device:
            event = cupy.cuda.Event(disable_timing=True)
            event.record(self.stream)
            return CudaEvent(event)

    def synchronize(self) -> None:
        with _errors(), self._device:
            self.stream.synchronize()


class CudaCommunicator:
    """An NCCL communicator of two ranks that is made in two steps, so that another thread can abort the second."""

    def __init__(self, device: "cupy.cuda.Device", unique_id: bytes, rank: int) -> None:
        self._device = device
        self._unique_id = unique_id
        self._rank = rank
        self._communicator = nccl.NcclCommunicator.__new__(nccl.NcclCommunicator)

    def connect(self) -> None:
        with _errors(), self._device:
            self._communicator.__init__(2, self._unique_id, self._rank)

    def send(self, region: Region, num_bytes: int, stream: Stream) -> None:
        with _errors(), self._device:
            pointer, handle = _pointer(region), _stream(stream).ptr
            self._communicator.send(pointer, num_bytes, nccl.NCCL_UINT8, 1 - self._rank, handle)

    def receive(self, region: Region, num_bytes: int, stream: Stream) -> None:
        with _errors(), self._device:
            pointer, handle = _pointer(region), _stream(stream).ptr
            self._communicator.recv(pointer, num_bytes, nccl.NCCL_UINT8, 1 - self._rank, handle)

    def abort(self) -> None:
        with _errors(), self._device:
            self._communicator.abort()


class CudaDevice:
    """A GPU, through cupy. ``name`` is cuda or cuda:N. Raise `DeviceError` if there is no such GPU."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = int(name.partition(":")[2] or 0)
        with _errors():
            self._device = cupy.cuda.Device(self.number)
            self.uuid = f"{BOOT_ID.read_text().strip()}-{runtime.deviceGetPCIBusId(self.number)}"
        self.segment = Segment("VRAM", self.number)
        self.has_nccl = bool(nccl.available)
        is_enabled = os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
        self.allows_two_ranks = self.has_nccl and is_enabled and nccl.get_version() >= MULTI_RANK_VERSION

    def __repr__(self) -> str:
        return f"<CudaDevice {self.name} {self.uuid}>"

    def allocate(self, num_bytes: int) -> Region:
        with _errors(), self._device:
            region = CudaRegion(runtime.malloc(num_bytes), num_bytes)
            weakref.finalize(region, _free, self._device, region.pointer)
            runtime.memset(region.pointer, 0, num_bytes)
            runtime.deviceSynchronize()
            return region

    def handle(self, region: Region) -> bytes:
        with _errors(), self._device:
            return bytes(runtime.ipcGetMemHandle(_pointer(region)))

    def open(self, handle: bytes, num_bytes: int) -> Region:
        with _errors(), self._device:
            return CudaRegion(runtime.ipcOpenMemHandle(handle), num_bytes)

    def close(self, region: Region) -> None:
        with _errors(), self._device:
            runtime.ipcCloseMemHandle(_pointer(region))

    def stream(self) -> Stream:
        with _errors():
            return CudaStream(self._device)

    def pinned(self, num_bytes: int) -> Bytes:
        with _errors(), self._device:
            memory = cupy.cuda.alloc_pinned_memory(num_bytes)
            pinned: Bytes = np.frombuffer(memory, np.uint8, num_bytes)
            return pinned

    def zero(self, region: Region, offset: int, num_bytes: int, stream: Stream) -> None:
        with _errors(), self._device:
            runtime.memsetAsync(_pointer(region) + offset, 0, num_bytes, _stream(stream).ptr)

    def to_host(self, region: Region, offset: int, host: Bytes, stream: Stream) -> None:
        with _errors(), self._device:
            kind, handle = runtime.memcpyDeviceToHost, _stream(stream).ptr
            runtime.memcpyAsync(host.ctypes.data, _pointer(region) + offset, host.nbytes, kind, handle)

    def to_device(self, host: Bytes, region: Region, offset: int, stream: Stream) -> None:
        with _errors(), self._device:
            kind, handle = runtime.memcpyHostToDevice, _stream(stream).ptr
            runtime.memcpyAsync(_pointer(region) + offset, host.ctypes.data, host.nbytes, kind, handle)

    def copy_pieces(
        self, source: Region, source_at: Offsets, target: Region, target_at: Offsets, piece_bytes: int, stream: Stream
    ) -> None:
        if piece_bytes % 16:
            raise DeviceError(f"pieces of {piece_bytes} bytes are no multiple of 16")
        with _errors(), self._device, _stream(stream):
            for first in range(0, len(source_at), MOST_PIECES):
                pieces = slice(first, first + MOST_PIECES)
                froms, tos = cupy.asarray(source_at[pieces]), cupy.asarray(target_at[pieces])
                arguments = np.uint64(_pointer(source)), np.uint64(_pointer(target)), froms, tos
                _kernel()(grid(len(froms), piece_bytes), (THREADS,), (*arguments, np.int64(piece_bytes // 16)))

    def unique_id(self) -> bytes:
        with _errors():
            return bytes(nccl.get_unique_id())

    def communicator(self, unique_id: bytes, rank: int) -> Communicator:
        return CudaCommunicator(self._device, unique_id, rank)


def array_of(device: Device, region: Region) -> "cupy.ndarray":
    """A region as an array of bytes, which torch takes by DLPack. It keeps the region."""
    assert isinstance(device, CudaDevice), "regions of a GPU"
    memory = cupy.cuda.UnownedMemory(_pointer(region), region.num_bytes, region, device.number)
    return cupy.ndarray((region.num_bytes,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))


@contextmanager
def _errors() -> Iterator[None]:
    """What CUDA, its driver, NCCL and the compiler of kernels raise, as `DeviceError`."""
    try:
        yield
    except (RuntimeError, MemoryError, cupy.cuda.compiler.CompileException) as error:
        if isinstance(error, DeviceError):
            raise
        raise DeviceError(f"{type(error).__name__}: {error}") from error


def _free(device: "cupy.cuda.Device", pointer: int) -> None:
    with device:
        runtime.free(pointer)


def _pointer(region: Region) -> int:
    assert isinstance(region, CudaRegion), "regions of one device"
    return region.pointer


def _stream(stream: Stream) -> "cupy.cuda.Stream":
    assert isinstance(stream, CudaStream), "streams of one device"
    return stream.stream
