"""How fast KV blocks move between two processes of this host, how soon one is there, and what CPU that takes.

    python -m bench.transfer.speed [--blocks KIB ...] [--rounds N]

Shared memory is held against a plain memory copy, TCP against a bare socket as the kernel makes it. The blocks end at
their place in the receiver's pool in every case, in messages as large as an engine's. All ways take turns; medians of
the rounds count.
"""

import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np
import psutil
import zmq

from bench.harness.arguments import script_parser
from bench.harness.tables import make_console, make_table
from kvtransfer.freed_memory import keep_freed_memory
from kvtransfer.layout import block_bytes
from kvtransfer.memory import KVMemory
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import ExportBlocks, Exported, ImportBlocks, TransferLimits
from kvtransfer.transports import transports_of
from mesh.sockets.sockets import LOCAL_SEND_BYTES
from mesh.transports import SHM, TCP
from mesh.wire.messages import Codec, encode
from mesh.wire.transfers import Blocks, KVShape, MemoryRef

BLOCK_KIB = (64, 256, 1024, 8192)
POOL_BYTES = 32 * 2**20
MOVES = 4  # of a round
BARE = "bare socket"
SINGLES = 20  # blocks that are moved alone in a round


def make_memory(block_kib: int) -> KVMemory:
    shape = KVShape(num_layers=1, num_kv_heads=1, head_dim=block_kib * 128, block_size=1, dtype="float32")
    return KVMemory.alone(shape, POOL_BYTES // block_bytes(shape))


@dataclass(frozen=True, slots=True)
class Peer:
    """The sending process as the receiver sees it. ``ask`` lets it send its first blocks, in their order."""

    ref: MemoryRef
    exported: Exported  # what the ``shm`` transport would send of all blocks
    pipe: Connection
    frames: zmq.Socket[bytes]
    stream: socket.socket
    process: psutil.Process

    def ask(self, transport: str, num_blocks: int) -> None:
        self.pipe.send((transport, num_blocks))

    def cpu_s(self) -> float:
        """CPU time of both processes."""
        there = self.process.cpu_times()
        return float(there.user + there.system) + time.process_time()


def run_sender(pipe: Connection, block_kib: int, checksum: bool, zmq_address: str, port: int) -> None:
    """The sending process, until it is told None."""
    keep_freed_memory()
    memory = make_memory(block_kib)
    memory.array[:] = np.random.default_rng(0).integers(0, 256, memory.array.shape, np.uint8)
    transports = transports_of(memory, PeerMemories(), lambda _: checksum)
    blocks = list(range(len(memory)))
    context = zmq.Context()
    frames = context.socket(zmq.PUSH)
    frames.setsockopt(zmq.SNDBUF, LOCAL_SEND_BYTES)
    frames.connect(zmq_address)
    plain = socket.create_connection(("127.0.0.1", port))
    pipe.send((memory.ref("local"), transports[SHM].export_blocks(ExportBlocks("t", "s", SHM, 0, blocks, "peer"))))
    while (asked := pipe.recv()) is not None:
        transport, num_blocks = asked
        if transport == TCP:
            for part in parts(blocks[:num_blocks], block_kib):
                exported = transports[TCP].export_blocks(ExportBlocks("t", "s", TCP, 0, part, "peer"))
                message = Blocks("t", 0, part[0], len(part), part, exported.generations, exported.checksums)
                frames.send_multipart([encode(message), *exported.payload], copy=False)
        else:
            for block in memory.array[:num_blocks]:
                plain.sendall(memoryview(block))
    context.destroy(linger=0)
    plain.close()


def parts(blocks: list[int], block_kib: int) -> Iterator[list[int]]:
    """The blocks of each message, as a sending engine divides them."""
    most = max(1, TransferLimits().message_bytes // (block_kib * 1024))
    for first in range(0, len(blocks), most):
        yield blocks[first : first + most]


@contextmanager
def sender(block_kib: int, checksum: bool) -> Iterator[Peer]:
    """A sending process, connected."""
    here, there = multiprocessing.Pipe()
    with zmq.Context() as context, context.socket(zmq.PULL) as frames, socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{frames.bind_to_random_port('tcp://127.0.0.1')}"
        arguments = there, block_kib, checksum, address, server.getsockname()[1]
        process = multiprocessing.get_context("spawn").Process(target=run_sender, args=arguments, daemon=True)
        process.start()
        with server.accept()[0] as stream:
            ref, exported = here.recv()
            yield Peer(ref, exported, here, frames, stream, psutil.Process(process.pid))
            here.send(None)
            process.join()


class Receiver:
    """Moves the peer's first blocks into its own pool, by one way or another."""

    def __init__(self, peer: Peer, memory: KVMemory, block_kib: int) -> None:
        self.peer = peer
        self.memory = memory
        self._block_kib = block_kib
        self.transports = transports_of(self.memory, PeerMemories(), lambda _: False)
        self.blocks = list(range(len(memory)))
        self._source = np.ones_like(memory.array)
        self._codec: Codec[Blocks] = Codec(Blocks)

    def _take(self, name: str, message: Blocks, payload: list[memoryview]) -> None:
        job = ImportBlocks("t", "s", name, "peer", self.peer.ref, message, payload, message.source_blocks)
        if not self.transports[name].import_blocks(job).ok:
            raise SystemExit(f"{name}: blocks did not arrive intact")

    def memcpy(self, num_blocks: int) -> None:
        np.copyto(self.memory.array[:num_blocks], self._source[:num_blocks])

    def shm(self, num_blocks: int) -> None:
        exported = self.peer.exported
        for part in parts(self.blocks[:num_blocks], self._block_kib):
            generations = [exported.generations[block] for block in part]
            checksums = [exported.checksums[block] for block in part] if exported.checksums else []
            self._take(SHM, Blocks("t", 0, part[0], len(part), part, generations, checksums), [])

    def tcp(self, num_blocks: int) -> None:
        self.peer.ask(TCP, num_blocks)
        for _ in parts(self.blocks[:num_blocks], self._block_kib):
            body, *payload = self.peer.frames.recv_multipart(copy=False)
            self._take(TCP, self._codec.decode(body.buffer), [frame.buffer for frame in payload])

    def bare_socket(self, num_blocks: int) -> None:
        self.peer.ask(BARE, num_blocks)
        for block in self.memory.array[:num_blocks]:
            view = memoryview(block).cast("B")
            while view:
                view = view[self.peer.stream.recv_into(view) :]


@dataclass(slots=True)
class Found:
    """Figures of one way, by round."""

    gb_per_s: list[float] = field(default_factory=list)
    cpu_s_per_gb: list[float] = field(default_factory=list)  # of both processes
    latency_ms: list[float] = field(default_factory=list)  # of one block, from the wish to its place

    def cells(self) -> list[str]:
        rate, cpu_s, latency_ms = map(statistics.median, (self.gb_per_s, self.cpu_s_per_gb, self.latency_ms))
        return [f"{rate:.2f}", f"{cpu_s:.2f}", f"{latency_ms:.3f}"]


def measure(peer: Peer, move: Callable[[int], None], num_blocks: int, num_bytes: int, found: Found) -> None:
    move(num_blocks)
    cpu_s, start = peer.cpu_s(), time.perf_counter()
    for _ in range(MOVES):
        move(num_blocks)
    gb = MOVES * num_bytes / 1e9
    found.gb_per_s.append(gb / (time.perf_counter() - start))
    found.cpu_s_per_gb.append((peer.cpu_s() - cpu_s) / gb)
    latencies = []
    for _ in range(SINGLES):
        start = time.perf_counter()
        move(1)
        latencies.append(1e3 * (time.perf_counter() - start))
    found.latency_ms.append(statistics.median(latencies))


def compare(block_kib: int, num_rounds: int) -> dict[str, Found]:
    """All ways, with blocks of that size."""
    memory = make_memory(block_kib)
    with sender(block_kib, checksum=False) as peer, sender(block_kib, checksum=True) as checking:
        plain, checked = Receiver(peer, memory, block_kib), Receiver(checking, memory, block_kib)
        ways = {
            "memcpy": (peer, plain.memcpy),
            "shm": (peer, plain.shm),
            "shm + checksum": (checking, checked.shm),
            BARE: (peer, plain.bare_socket),
            "tcp": (peer, plain.tcp),
            "tcp + checksum": (checking, checked.tcp),
        }
        found = {name: Found() for name in ways}
        for _ in range(num_rounds):
            for name, (whose, move) in ways.items():
                measure(whose, move, len(memory), memory.array.nbytes, found[name])
    return found


def main() -> None:
    parser = script_parser("bench.transfer.speed", __doc__)
    parser.add_argument("--blocks", type=int, nargs="+", default=BLOCK_KIB, metavar="KIB", help="sizes of a block")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(default: 5)")
    options = parser.parse_args()
    keep_freed_memory()
    title = f"moves of {POOL_BYTES // 2**20} MiB, medians of {options.rounds} rounds"
    table = make_table(
        title,
        ("block", "way", "GB/s", "CPU s/GB, both ends", "one block, ms"),
    )
    for block_kib in options.blocks:
        for name, found in compare(block_kib, options.rounds).items():
            table.add_row(f"{block_kib} KiB", name, *found.cells())
    make_console().print(table)


if __name__ == "__main__":
    main()
