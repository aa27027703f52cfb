"""How fast KV blocks move between two processes on one GPU, beside a plain copy on that GPU.

    python -m bench.transfer.gpu [--device cuda:0] [--blocks 1000] [--json FILE]

Blocks of Llama-2-7B's shape (16 tokens, bfloat16: 8 MiB), chosen at random, from a pool to a pool: gather, transfer and
scatter. A ratio of 1 is a copy of as many bytes that lie in one piece. ``one`` puts all blocks into one message, the
other rows as engines send them. With ``--device cpu`` the same code measures ``shm`` and ``tcp``: a smoke test.
NCCL has two ranks on one GPU with NCCL_MULTI_RANK_GPU_ENABLE=1 only, which this command sets.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection

import numpy as np

from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from kvtransfer.gpu.device import MESSAGE_BYTES
from kvtransfer.gpu.device_memory import DeviceKVMemory, DeviceMemory
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import ExportBlocks, ImportBlocks
from kvtransfer.transports import transports_of
from mesh.transports import CUDA_IPC, NCCL, SHM, TCP
from mesh.wire.transfers import Blocks, KVShape, MemoryRef

LLAMA2_7B = KVShape(num_layers=32, num_kv_heads=32, head_dim=128, block_size=16, dtype="bfloat16")
SMALL = KVShape(num_layers=4, num_kv_heads=4, head_dim=64, block_size=16, dtype="bfloat16")
ROUNDS = 5
CONNECT_S = 30.0


@dataclass(frozen=True, slots=True)
class Row:
    transport: str
    messages: str
    gb_per_s: float
    ratio: float  # to the plain copy


class End:
    """A pool and its transports in this process."""

    def __init__(self, device: str, shape: KVShape, num_blocks: int) -> None:
        self.peers = PeerMemories()
        self.memory: KVMemory | DeviceKVMemory
        if device == "cpu":
            self.memory = KVMemory.alone(shape, num_blocks)
        else:
            from engines.torch_engine.gpu_memory import open_gpu

            gpu, layout = open_gpu(device), PageLayout.of([shape], num_blocks)
            self.memory = DeviceKVMemory(DeviceMemory(layout, gpu), shape)
            self.peers.equip(gpu, layout.page_bytes)
        self.transports = transports_of(self.memory, self.peers, lambda _: False)


def send(pipe: Connection, device: str, shape: KVShape, num_blocks: int) -> None:
    """The sending process: export what is asked for, until it is asked for nothing."""
    end = End(device, shape, num_blocks)
    pipe.send(end.memory.ref("here"))
    while (asked := pipe.recv()) is not None:
        transport, blocks = asked
        done = end.transports[transport].export_blocks(ExportBlocks("t", "s", transport, 0, blocks, "receiver"))
        tokens = len(blocks) * shape.block_size
        message = Blocks("t", 0, 0, tokens, blocks, done.generations, done.checksums)
        pipe.send((message, [bytes(memoryview(frame)) for frame in done.payload]))


class Receiver:
    def __init__(self, device: str, shape: KVShape, num_blocks: int, pipe: Connection) -> None:
        self.end = End(device, shape, num_blocks)
        self._pipe = pipe
        self._ref: MemoryRef = pipe.recv()

    def take(self, transport: str, blocks: list[int], destinations: list[int]) -> bool:
        """Move blocks in one message; whether their bytes came otherwise than in it."""
        self._pipe.send((transport, blocks))
        message, payload = self._pipe.recv()
        job = ImportBlocks("t", "s", transport, "sender", self._ref, message, payload, destinations)
        if not self.end.transports[transport].import_blocks(job).ok:
            raise RuntimeError(f"{transport} did not deliver; the line above says why")
        return len(payload) <= 1

    def connect(self) -> None:
        """Until NCCL carries the bytes."""
        ends_at = time.perf_counter() + CONNECT_S
        while not self.take(NCCL, [0], [0]):
            if time.perf_counter() > ends_at:
                raise RuntimeError(f"no NCCL channel within {CONNECT_S:g} s")

    def seconds(self, transport: str, parts: Sequence[list[int]], targets: Sequence[list[int]]) -> float:
        """Median over rounds."""
        times = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for blocks, destinations in zip(parts, targets, strict=True):
                self.take(transport, blocks, destinations)
            times.append(time.perf_counter() - started)
        return statistics.median(times)


def copy_seconds(device: str, num_bytes: int) -> float:
    """A plain copy on the device, of bytes in one piece: the fastest of some."""
    import torch

    source, target = (torch.empty(num_bytes, dtype=torch.uint8, device=device) for _ in range(2))
    times = []
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        target.copy_(source)
        if device != "cpu":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return min(times)


def measure(device: str, num_blocks: int, transports: Sequence[str]) -> tuple[float, list[Row]]:
    """Bandwidth of the plain copy in GB/s, and a row for each transport and way to send."""
    shape = SMALL if device == "cpu" else LLAMA2_7B
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    child = context.Process(target=send, args=(theirs, device, shape, num_blocks), daemon=True)
    child.start()
    try:
        return _rows(Receiver(device, shape, num_blocks, pipe), device, transports)
    finally:
        pipe.send(None)
        child.join(10)
        child.kill()


def _rows(receiver: Receiver, device: str, transports: Sequence[str]) -> tuple[float, list[Row]]:
    layout = receiver.end.memory.layout
    num_bytes = layout.num_blocks * layout.block_bytes
    copy_s = copy_seconds(device, min(num_bytes, 2**31))
    copy_rate = min(num_bytes, 2**31) / copy_s
    dice = np.random.default_rng(0)
    sources, targets = (dice.permutation(layout.num_blocks).tolist() for _ in range(2))
    rows = []
    for transport in transports:
        step = max(1, MESSAGE_BYTES // layout.block_bytes)
        ways = {f"{step} blocks": step}
        if transport in (CUDA_IPC, SHM):
            ways["one"] = layout.num_blocks
        if transport == NCCL:
            receiver.connect()
        for name, size in ways.items():
            parts, places = (
                [blocks[first : first + size] for first in range(0, len(blocks), size)] for blocks in (sources, targets)
            )
            rate = num_bytes / receiver.seconds(transport, parts, places)
            rows.append(Row(transport, name, rate / 1e9, rate / copy_rate))
    return copy_rate / 1e9, rows


def main() -> None:
    parser = script_parser("bench.transfer.gpu", __doc__)
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu for a smoke test (default: cuda:0)")
    parser.add_argument("--blocks", type=int, default=1000)
    add_json(parser)
    options = parser.parse_args()
    transports = (SHM, TCP) if options.device == "cpu" else (CUDA_IPC, NCCL, TCP)
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    copy_rate, rows = measure(options.device, options.blocks, transports)
    print(f"plain copy on {options.device}: {copy_rate:.1f} GB/s")
    for row in rows:
        print(f"{row.transport:9} {row.messages:>9} a message: {row.gb_per_s:8.1f} GB/s, {row.ratio:.2f} of the copy")
    if options.json is not None:
        write_json(options.json, {"copy_gb_per_s": copy_rate, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
