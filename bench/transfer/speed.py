"""How fast KV blocks move between two processes of this host.

    python -m bench.transfer.speed [--blocks KIB ...] [--rounds N] [--json FILE]
    python -m bench.transfer.speed --device cuda:0 [--rounds N] [--json FILE]

Blocks end at their place in the receiver's pool, in messages as large as an engine's. Shared memory is held against a
plain memory copy, TCP against a bare socket as the kernel makes it. NIXL is measured where it is installed; UCX_TLS=tcp
keeps it to what it has between hosts without RDMA. On a GPU it is blocks of Llama-2-7B (16 tokens, bfloat16: 8 MiB) in
no order, beside a plain copy there. All ways take turns; medians of the rounds count. CPU time is that of both
processes. NCCL has two ranks on one GPU with NCCL_MULTI_RANK_GPU_ENABLE=1 only, which this command sets.
"""

import importlib.util
import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from random import Random

import numpy as np
import psutil
import zmq

from bench.harness.arguments import script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from kvtransfer.freed_memory import keep_freed_memory
from kvtransfer.gpu.device import MESSAGE_BYTES
from kvtransfer.gpu.device_memory import DeviceKVMemory, DeviceMemory
from kvtransfer.layout import PageLayout, block_bytes
from kvtransfer.memory import KVMemory, PagedMemory
from kvtransfer.nixl.transport import open_nixl
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import ExportBlocks, ImportBlocks, TransferLimits
from kvtransfer.transports import transports_of
from mesh.sockets.sockets import LOCAL_SEND_BYTES
from mesh.transports import CUDA_IPC, NCCL, NIXL, SHM, TCP
from mesh.wire.messages import Codec, encode
from mesh.wire.transfers import Blocks, KVShape

BLOCK_KIB = (64, 256, 1024, 8192)
LLAMA2_7B = KVShape(num_layers=32, num_kv_heads=32, head_dim=128, block_size=16, dtype="bfloat16")
POOL_BYTES, GPU_POOL_BYTES = 32 * 2**20, 2**31
MOVES = 4  # of a round, of whole pools
BARE = "bare socket"
ANSWER_S = 30.0

Move = Callable[[int], object]  # of so many blocks


@dataclass(frozen=True, slots=True)
class Setting:
    """A pool as each of the processes has one."""

    device: str
    block_kib: int
    checksum: bool = False
    nixl: bool = False

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def shape(self) -> KVShape:
        return LLAMA2_7B if self.is_gpu else KVShape(1, 1, self.block_kib * 128, block_size=1, dtype="float32")

    @property
    def num_blocks(self) -> int:
        return (GPU_POOL_BYTES if self.is_gpu else POOL_BYTES) // block_bytes(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.num_blocks * block_bytes(self.shape)

    def order(self, seed: int) -> list[int]:
        """The blocks: in a random order on a GPU."""
        blocks = range(self.num_blocks)
        return Random(seed).sample(blocks, len(blocks)) if self.is_gpu else list(blocks)

    def messages(self, num_blocks: int) -> list[slice]:
        """The part of each message, as a sending engine divides blocks."""
        message_bytes = MESSAGE_BYTES if self.is_gpu else TransferLimits().message_bytes
        step = max(1, message_bytes // block_bytes(self.shape))
        return [slice(first, min(first + step, num_blocks)) for first in range(0, num_blocks, step)]


class End:
    """A pool and its transports in this process."""

    def __init__(self, setting: Setting) -> None:
        peers = PeerMemories()
        self.memory: KVMemory | DeviceKVMemory
        if setting.is_gpu:
            from engines.torch_engine.gpu_memory import open_gpu

            gpu, layout = open_gpu(setting.device), PageLayout.of([setting.shape], setting.num_blocks)
            self.memory = DeviceKVMemory(DeviceMemory(layout, gpu), setting.shape)
            peers.equip(gpu, layout.page_bytes)
        else:
            paged = PagedMemory(PageLayout.of([setting.shape], setting.num_blocks))
            self.memory = KVMemory(paged, setting.shape)
            if setting.nixl:
                peers.nixl = open_nixl(paged)
        self.transports = transports_of(self.memory, peers, lambda _: setting.checksum)


def send(pipe: Connection, setting: Setting, frames_address: str, port: int) -> None:
    """Send what is asked for, (way, blocks of each message), until it is None."""
    keep_freed_memory()
    end, context = End(setting), zmq.Context()
    if isinstance(end.memory, KVMemory):
        end.memory.array[:] = np.random.default_rng(0).integers(0, 256, end.memory.array.shape, np.uint8)
    frames = context.socket(zmq.PUSH)
    frames.setsockopt(zmq.SNDBUF, LOCAL_SEND_BYTES)
    frames.connect(frames_address)
    plain = socket.create_connection(("127.0.0.1", port))
    pipe.send(end.memory.ref("here"))
    while (asked := pipe.recv()) is not None:
        way, messages = asked
        for blocks in messages:
            if way == BARE and isinstance(end.memory, KVMemory):
                for block in blocks:
                    plain.sendall(memoryview(end.memory.array[block]))
                continue
            done = end.transports[way].export_blocks(ExportBlocks("t", "s", way, 0, blocks, "receiver"))
            tokens = len(blocks) * setting.shape.block_size
            message = Blocks("t", 0, 0, tokens, blocks, done.generations, done.checksums)
            frames.send_multipart([encode(message), *done.payload], copy=False)
    context.destroy(linger=0)
    plain.close()


@contextmanager
def receiver(setting: Setting) -> "Iterator[Receiver]":
    """A receiver, and a sending process to which it is connected."""
    here, there = multiprocessing.Pipe()
    with zmq.Context() as context, context.socket(zmq.PULL) as frames, socket.create_server(("127.0.0.1", 0)) as server:
        frames.setsockopt(zmq.RCVTIMEO, round(1000 * ANSWER_S))
        address = f"tcp://127.0.0.1:{frames.bind_to_random_port('tcp://127.0.0.1')}"
        arguments = there, setting, address, server.getsockname()[1]
        process = multiprocessing.get_context("spawn").Process(target=send, args=arguments, daemon=True)
        process.start()
        with server.accept()[0] as stream:
            yield Receiver(setting, here, frames, stream, psutil.Process(process.pid))
            here.send(None)
            process.join()


class Receiver:
    """Moves the peer's first blocks into its own pool, by one way or another."""

    def __init__(
        self,
        setting: Setting,
        pipe: Connection,
        frames: "zmq.Socket[bytes]",
        stream: socket.socket,
        sender: psutil.Process,
    ) -> None:
        self.setting = setting
        self._sender = sender
        self._pipe, self._frames, self._stream = pipe, frames, stream
        self._end, self._codec = End(setting), Codec[Blocks](Blocks)
        self._sources, self._places = setting.order(0), setting.order(1)
        self._ref = pipe.recv()
        if isinstance(self._end.memory, KVMemory):
            self._array = self._end.memory.array
            self._ones = np.ones_like(self._array)
            pipe.send((SHM, [self._sources]))
            self._shared, _ = self._receive()

    def cpu_s(self) -> float:
        """CPU time of both processes so far."""
        sender = self._sender.cpu_times()
        return time.process_time() + float(sender.user + sender.system)

    def _receive(self) -> tuple[Blocks, list[memoryview]]:
        body, *payload = self._frames.recv_multipart(copy=False)
        return self._codec.decode(body.buffer), [frame.buffer for frame in payload]

    def _take(self, way: str, message: Blocks, payload: list[memoryview], places: list[int]) -> None:
        job = ImportBlocks("t", "s", way, "sender", self._ref, message, payload, places)
        if not self._end.transports[way].import_blocks(job).ok:
            raise SystemExit(f"{way}: blocks did not arrive intact")

    def connect(self) -> None:
        """Until NCCL carries the bytes, which then are in no frame."""
        ends_at = time.monotonic() + ANSWER_S
        while time.monotonic() < ends_at:
            self._pipe.send((NCCL, [[0]]))
            message, payload = self._receive()
            self._take(NCCL, message, payload, [0])
            if len(payload) <= 1:
                return
        raise SystemExit(f"no NCCL channel within {ANSWER_S:g} s")

    def sent(self, way: str, num_blocks: int) -> None:
        """By messages of the peer: on a GPU one after the other."""
        parts = self.setting.messages(num_blocks)
        for together in [[part] for part in parts] if self.setting.is_gpu else [parts]:
            self._pipe.send((way, [self._sources[part] for part in together]))
            for part in together:
                self._take(way, *self._receive(), self._places[part])

    def shm(self, num_blocks: int) -> None:
        for part in self.setting.messages(num_blocks):
            shared, blocks = self._shared, self._sources[part]
            message = Blocks("t", 0, 0, len(blocks), blocks, shared.generations[part], shared.checksums[part])
            self._take(SHM, message, [], self._places[part])

    def bare_socket(self, num_blocks: int) -> None:
        self._pipe.send((BARE, [self._sources[:num_blocks]]))
        for block in self._array[:num_blocks]:
            view = memoryview(block).cast("B")
            while view:
                view = view[self._stream.recv_into(view) :]

    def memcpy(self, num_blocks: int) -> None:
        np.copyto(self._array[:num_blocks], self._ones[:num_blocks])


def device_copy(device: str, num_bytes: int) -> Move:
    """Plain copies of bytes in one piece, at most ``num_bytes``."""
    import torch

    source, target = (torch.empty(num_bytes, dtype=torch.uint8, device=device) for _ in range(2))

    def copy(num_bytes: int) -> None:
        target[:num_bytes].copy_(source[:num_bytes])
        if device != "cpu":
            torch.cuda.synchronize(device)

    return copy


@dataclass(frozen=True, slots=True)
class Row:
    """The median of rounds."""

    block_kib: int
    way: str
    gb_per_s: float
    ratio: float  # to the plain copy
    cpu_s_per_gb: float  # of both processes

    def cells(self) -> list[str]:
        return [
            f"{self.block_kib} KiB",
            self.way,
            *(f"{one:.2f}" for one in (self.gb_per_s, self.ratio, self.cpu_s_per_gb)),
        ]


def measure(receiver: Receiver, move: Move) -> tuple[float, float]:
    """GB/s of a round, and CPU seconds for each GB."""
    setting = receiver.setting
    move(setting.num_blocks)
    began, cpu_s = time.perf_counter(), receiver.cpu_s()
    for _ in range(MOVES):
        move(setting.num_blocks)
    took_s = time.perf_counter() - began
    moved_gb = MOVES * setting.num_bytes / 1e9
    return moved_gb / took_s, (receiver.cpu_s() - cpu_s) / moved_gb


@contextmanager
def ways_of(device: str, block_kib: int) -> Iterator[dict[str, tuple[Receiver, Move]]]:
    """The plain copy is the first."""
    setting = Setting(device, block_kib)
    if setting.is_gpu:
        with receiver(setting) as only:
            copy, size = device_copy(device, setting.num_bytes), block_bytes(setting.shape)
            moves = {"copy": lambda number: copy(number * size)}
            moves |= {way: partial(only.sent, way) for way in gpu_ways(device)}
            if NCCL in moves:
                only.connect()
            yield {name: (only, move) for name, move in moves.items()}
        return
    with ExitStack() as stack:
        plain = stack.enter_context(receiver(setting))
        checked = stack.enter_context(receiver(Setting(device, block_kib, checksum=True)))
        ways: dict[str, tuple[Receiver, Move]] = {
            "memcpy": (plain, plain.memcpy),
            "shm": (plain, plain.shm),
            "shm + checksum": (checked, checked.shm),
            BARE: (plain, plain.bare_socket),
            "tcp": (plain, partial(plain.sent, TCP)),
            "tcp + checksum": (checked, partial(checked.sent, TCP)),
        }
        if importlib.util.find_spec(NIXL) is not None:
            agents = stack.enter_context(receiver(Setting(device, block_kib, nixl=True)))
            ways[NIXL] = agents, partial(agents.sent, NIXL)
        yield ways


def gpu_ways(device: str) -> list[str]:
    """Some versions of NCCL take no two ranks on one GPU, and are left out."""
    from engines.torch_engine.gpu_memory import open_gpu

    return [CUDA_IPC, NCCL, TCP] if open_gpu(device).allows_two_ranks else [CUDA_IPC, TCP]


def compare(device: str, block_kib: int, num_rounds: int) -> list[Row]:
    """All ways, with blocks of that size."""
    with ways_of(device, block_kib) as ways:
        rounds = [[measure(*way) for way in ways.values()] for _ in range(num_rounds)]
    medians = [tuple(map(statistics.median, zip(*way, strict=True))) for way in zip(*rounds, strict=True)]
    return [
        Row(block_kib, name, rate, rate / medians[0][0], cpu_s)
        for name, (rate, cpu_s) in zip(ways, medians, strict=True)
    ]


def main() -> None:
    parser = script_parser("bench.transfer.speed", __doc__, rounds=5, json=True)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N (default: cpu)")
    parser.add_argument("--blocks", type=int, nargs="+", default=BLOCK_KIB, metavar="KIB", help="sizes, on the CPU")
    options = parser.parse_args()
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    keep_freed_memory()
    sizes = options.blocks if options.device == "cpu" else [block_bytes(LLAMA2_7B) // 1024]
    rows = [row for size in sizes for row in compare(options.device, size, options.rounds)]
    title = f"medians of {options.rounds} rounds"
    print_table(title, ("block", "way"), ("GB/s", "of a copy", "CPU s a GB"), [row.cells() for row in rows])
    write_json(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
