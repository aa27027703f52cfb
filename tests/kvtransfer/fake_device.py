"""A double of `kvtransfer.gpu.device`: GPUs of numpy arrays, streams of threads, NCCL of queues. No CUDA.

A `World` is what the driver and NCCL know: allocations by handle, communicators by unique id. Each `FakeDevice` stands
for one process. Streams do what they are given later, in order, so that a missing synchronisation shows.
"""

import itertools
import queue
import random
import secrets
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from kvtransfer.gpu.device import DeviceError
from kvtransfer.nixl.agent import DRAM


@dataclass
class Rendezvous:
    """What two ranks share."""

    ranks: set = field(default_factory=set)
    sends: queue.Queue = field(default_factory=queue.Queue)
    changed: threading.Condition = field(default_factory=threading.Condition)
    is_aborted: bool = False


class World:
    def __init__(self, delay_s=0.0):
        self.delay_s = delay_s  # of every work of a stream
        self.lock = threading.Lock()
        self.regions = {}  # by handle
        self.meetings = {}
        self.num_aborts = 0
        self.refuses_ids = False
        self.late_s = 0.0  # ranks begin to connect up to so much later than they are told to

    def meeting(self, unique_id):
        with self.lock:
            return self.meetings.setdefault(unique_id, Rendezvous())

    def die(self, device):
        """Its process ends: what its GPU memory holds may be anything, and nobody answers for it."""
        device.is_dead = True
        with self.lock:
            for region in device.allocated:
                region.bytes[:] = 0xDD
        for communicator in device.communicators:
            communicator.is_gone = True


@dataclass(eq=False)
class FakeRegion:
    bytes: np.ndarray
    owner: object
    is_open: bool = True

    @property
    def num_bytes(self):
        return len(self.bytes)

    @property
    def address(self):
        return self.bytes.ctypes.data


class FakeEvent:
    def __init__(self):
        self.done = threading.Event()
        self.error = None

    def is_done(self):
        if self.error:
            raise DeviceError(self.error)
        return self.done.is_set()


class FakeStream:
    def __init__(self, world):
        self.world = world
        self.work = queue.Queue()
        self.thread = None
        self.error = None

    def put(self, work):
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, daemon=True)
            self.thread.start()
        self.work.put(work)

    def _run(self):
        while True:
            work = self.work.get()
            if self.world.delay_s:
                threading.Event().wait(self.world.delay_s)
            try:
                work()
            except DeviceError as error:
                self.error = str(error)

    def record(self):
        event = FakeEvent()
        self.put(event.done.set)
        return event

    def synchronize(self):
        event = self.record()
        assert event.done.wait(60), "a stream hangs"
        if self.error:
            error, self.error = self.error, None
            raise DeviceError(error)


class FakeCommunicator:
    def __init__(self, device, unique_id, rank):
        self.device, self.rank = device, rank
        self.meeting = device.world.meeting(unique_id)
        self.is_aborted = self.is_gone = False
        self.is_connected = False

    def _ends(self):
        return self.is_aborted or self.is_gone

    def connect(self):
        meeting = self.meeting
        time.sleep(random.uniform(0, self.device.world.late_s))
        with meeting.changed:
            assert self.rank not in meeting.ranks, "a rank joins once"
            meeting.ranks.add(self.rank)
            meeting.changed.notify_all()
            while meeting.ranks != {0, 1}:
                if self._ends():
                    raise DeviceError("aborted while connecting")
                meeting.changed.wait(0.01)
        self.is_connected = True

    def send(self, region, num_bytes, stream):
        assert self.rank == 0
        assert self.is_connected
        assert not self.is_aborted, "used after the abort"
        taken = threading.Event()

        def work():
            self.meeting.sends.put((region.bytes[:num_bytes].copy(), taken))
            while not taken.wait(0.005):
                if self._ends():
                    raise DeviceError("send aborted")

        stream.put(work)

    def receive(self, region, num_bytes, stream):
        assert self.rank == 1
        assert self.is_connected
        assert not self.is_aborted, "used after the abort"

        def work():
            while True:
                try:
                    content, taken = self.meeting.sends.get(timeout=0.005)
                    break
                except queue.Empty:
                    if self._ends():
                        raise DeviceError("receive aborted") from None
            assert len(content) == num_bytes, "sizes of one exchange differ: NCCL would hang or corrupt"
            region.bytes[:num_bytes] = content
            taken.set()

        stream.put(work)

    def abort(self):
        self.is_aborted = True
        self.device.world.num_aborts += 1


class FakeDevice:
    """One process's view of a GPU."""

    def __init__(self, world, gpu="gpu-0", has_nccl=True, allows_two_ranks=True):
        self.world, self.name, self.uuid = world, "cuda:0", gpu
        self.has_nccl, self.allows_two_ranks = has_nccl, allows_two_ranks
        self.segment = DRAM  # where its regions are
        self.is_dead = False
        self.allocated, self.communicators, self.opened = [], [], []
        self.num_copies = 0
        self.copied = lambda: None  # called by a stream after each copy of pieces
        self._ids = itertools.count()

    def allocate(self, num_bytes):
        region = FakeRegion(np.zeros(num_bytes, np.uint8), self)
        self.allocated.append(region)
        return region

    def handle(self, region):
        assert region.owner is self, "only what was allocated here has a handle"
        handle = secrets.token_bytes(64)
        self.world.regions[handle] = region
        return handle

    def open(self, handle, num_bytes):
        region = self.world.regions.get(handle)
        if region is None or region.owner.is_dead:
            raise DeviceError("cudaErrorInvalidValue: invalid argument")
        if region.owner is self:
            raise DeviceError("cudaErrorDeviceUninitialized: a handle opens in other processes only")
        if region.num_bytes != num_bytes:
            raise DeviceError(f"the allocation has {region.num_bytes} bytes")
        opened = FakeRegion(region.bytes, region.owner)
        self.opened.append(opened)
        return opened

    def close(self, region):
        assert region.is_open, "closed twice"
        region.is_open = False

    def stream(self):
        return FakeStream(self.world)

    def pinned(self, num_bytes):
        return np.empty(num_bytes, np.uint8)

    def zero(self, region, offset, num_bytes, stream):
        def work():
            region.bytes[offset : offset + num_bytes] = 0

        stream.put(work)

    def to_host(self, region, offset, host, stream):
        def work():
            self._check(region)
            host[:] = region.bytes[offset : offset + len(host)]

        stream.put(work)

    def to_device(self, host, region, offset, stream):
        stream.put(lambda: region.bytes.__setitem__(slice(offset, offset + len(host)), host))

    def copy_pieces(self, source, source_at, target, target_at, piece_bytes, stream):
        assert piece_bytes % 16 == 0
        assert len(source_at) == len(target_at)

        def work():
            self._check(source)
            for first, last in zip(source_at.tolist(), target_at.tolist(), strict=True):
                assert 0 <= first <= source.num_bytes - piece_bytes, "out of bounds"
                assert 0 <= last <= target.num_bytes - piece_bytes, "out of bounds"
                target.bytes[last : last + piece_bytes] = source.bytes[first : first + piece_bytes]
            self.num_copies += 1
            self.copied()

        stream.put(work)

    def _check(self, region):
        if not region.is_open:
            raise DeviceError("an illegal memory access was encountered: the region is closed")

    def unique_id(self):
        if self.world.refuses_ids:
            raise DeviceError("NCCL_ERROR_SYSTEM_ERROR")
        return secrets.token_bytes(128)

    def communicator(self, unique_id, rank):
        communicator = FakeCommunicator(self, unique_id, rank)
        self.communicators.append(communicator)
        return communicator
