"""How fast KV blocks move between two processes of this host.

    python -m bench.transfer_speed

Shared memory is held against a plain memory copy, TCP against a bare socket. The blocks end at their place in the
receiver's pool in every case.
"""

import argparse
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
import zmq
from rich.console import Console
from rich.table import Table

from kvtransfer.layout import block_bytes
from kvtransfer.memory import KVMemory
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import ExportBlocks, Exported, ImportBlocks
from kvtransfer.transports import transports_of
from mesh.messages import Blocks, KVShape, MemoryRef
from mesh.transports import SHM, TCP

BLOCK_KIB = (64, 256, 1024, 8192)
POOL_BYTES = 32 * 2**20
REPEATS = 5


def make_memory(block_kib: int) -> KVMemory:
    shape = KVShape(num_layers=1, num_kv_heads=1, head_dim=block_kib * 128, block_size=1, dtype="float32")
    return KVMemory.alone(shape, POOL_BYTES // block_bytes(shape))


@dataclass(frozen=True, slots=True)
class Peer:
    """The sending process as the receiver sees it. ``ask`` lets it send its whole pool once."""

    ref: MemoryRef
    exported: Exported  # what the ``shm`` transport would send
    pipe: Connection
    frames: zmq.Socket[bytes]
    stream: socket.socket

    def ask(self, transport: str) -> None:
        self.pipe.send(transport)


def run_sender(pipe: Connection, block_kib: int, checksum: bool, zmq_address: str, port: int) -> None:
    """The sending process, until it is told None."""
    memory = make_memory(block_kib)
    memory.array[:] = np.random.default_rng(0).integers(0, 256, memory.array.shape, np.uint8)
    transports = transports_of(memory, PeerMemories(), checksum)
    jobs = {name: ExportBlocks("t", "s", name, 0, list(range(len(memory))), "peer") for name in (SHM, TCP)}
    context = zmq.Context()
    frames = context.socket(zmq.PUSH)
    frames.connect(zmq_address)
    stream = socket.create_connection(("127.0.0.1", port))
    pipe.send((memory.ref("local"), transports[SHM].export_blocks(jobs[SHM])))
    while (transport := pipe.recv()) is not None:
        if transport == TCP:
            exported = transports[TCP].export_blocks(jobs[TCP])
            pipe.send(exported.checksums)
            frames.send_multipart(exported.payload, copy=False)
        else:
            for block in memory.array:
                stream.sendall(memoryview(block))
    context.destroy(linger=0)
    stream.close()


@contextmanager
def sender(block_kib: int, checksum: bool) -> Iterator[Peer]:
    """A sending process, connected."""
    here, there = multiprocessing.Pipe()
    with zmq.Context() as context, context.socket(zmq.PULL) as frames, socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{frames.bind_to_random_port('tcp://127.0.0.1')}"
        arguments = there, block_kib, checksum, address, server.getsockname()[1]
        process = multiprocessing.get_context("spawn").Process(target=run_sender, args=arguments, daemon=True)
        process.start()
        stream, _ = server.accept()
        with stream:
            ref, exported = here.recv()
            yield Peer(ref, exported, here, frames, stream)
            here.send(None)
            process.join()


class Receiver:
    """Moves the peer's whole pool into its own, by one way or another."""

    def __init__(self, peer: Peer, memory: KVMemory) -> None:
        self.peer = peer
        self.memory = memory
        self.transports = transports_of(self.memory, PeerMemories(), checksum=False)
        self.blocks = list(range(len(memory)))
        self._source = np.ones_like(memory.array)

    def _take(self, name: str, checksums: list[int], payload: list[memoryview]) -> None:
        generations = self.peer.exported.generations
        message = Blocks("t", 0, 0, len(self.blocks), self.blocks, generations, checksums)
        job = ImportBlocks("t", "s", name, "peer", self.peer.ref, message, payload, self.blocks)
        if not self.transports[name].import_blocks(job).ok:
            raise SystemExit(f"{name}: blocks did not arrive intact")

    def memcpy(self) -> None:
        np.copyto(self.memory.array, self._source)

    def shm(self) -> None:
        self._take(SHM, self.peer.exported.checksums, [])

    def tcp(self) -> None:
        self.peer.ask(TCP)
        checksums = self.peer.pipe.recv()
        self._take(TCP, checksums, [frame.buffer for frame in self.peer.frames.recv_multipart(copy=False)])

    def bare_socket(self) -> None:
        self.peer.ask("bare socket")
        for block in self.memory.array:
            view = memoryview(block).cast("B")
            while view:
                view = view[self.peer.stream.recv_into(view) :]


def gb_per_s(move: Callable[[], None], num_bytes: int) -> float:
    """Median over some runs after one that does not count."""
    move()
    rates = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        move()
        rates.append(num_bytes / (time.perf_counter() - start) / 1e9)
    return statistics.median(rates)


def measure(block_kib: int) -> list[float]:
    """GB/s of memcpy, shm, shm with checksums, bare socket, tcp, tcp with checksums."""
    memory = make_memory(block_kib)
    num_bytes = memory.array.nbytes
    with sender(block_kib, checksum=False) as peer:
        plain = Receiver(peer, memory)
        ways = (plain.memcpy, plain.shm, plain.bare_socket, plain.tcp)
        memcpy, shm, bare_socket, tcp = (gb_per_s(move, num_bytes) for move in ways)
    with sender(block_kib, checksum=True) as peer:
        checked = Receiver(peer, memory)
        shm_checked, tcp_checked = (gb_per_s(move, num_bytes) for move in (checked.shm, checked.tcp))
    return [memcpy, shm, shm_checked, bare_socket, tcp, tcp_checked]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.transfer_speed", description=__doc__.splitlines()[0])
    parser.parse_args()
    columns = ("block", "memcpy", "shm", "shm + checksum", "bare socket", "tcp", "tcp + checksum")
    table = Table(*columns, title=f"GB/s, median of {REPEATS} moves of {POOL_BYTES // 2**20} MiB")
    for block_kib in BLOCK_KIB:
        table.add_row(f"{block_kib} KiB", *(f"{rate:.2f}" for rate in measure(block_kib)))
    Console().print(table)


if __name__ == "__main__":
    main()
