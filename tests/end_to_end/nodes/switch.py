"""An Ethernet switch between nodes, in a process of its own: it stops and records frames as it is told.

Each node has a TAP device, and this process moves the frames between them, so TCP sends again what is lost here, as on
a real network.

It reads one line of JSON for each order from standard input, and answers each with a line. It ends with its input.
"""

import ctypes
import fcntl
import json
import os
import select
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

DEVICE = "eth0"
MAX_FRAME_BYTES = 65536
MAX_FRAMES_A_TURN = 64
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
MULTICAST = 1  # the bit of a frame's first byte that says that it is for more than one
PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, MAX_FRAME_BYTES, 1)


class Wiring:
    """Which frames go where. Pure."""

    def __init__(self) -> None:
        self.cuts: set[frozenset[str]] = set()  # pairs of nodes that do not hear each other
        self._nodes: set[str] = set()
        self._homes: dict[bytes, str] = {}  # the node of each hardware address

    def plug(self, node: str) -> None:
        self._nodes.add(node)

    def unplug(self, node: str) -> None:
        self._nodes.discard(node)
        self._homes = {address: home for address, home in self._homes.items() if home != node}

    def take(self, source: str, frame: bytes) -> list[str]:
        """Return the nodes that a frame of this node is for."""
        self._homes[frame[6:12]] = source
        home = None if frame[0] & MULTICAST else self._homes.get(frame[:6])
        targets = [home] if home is not None else [node for node in self._nodes if node != source]
        return [target for target in targets if frozenset((source, target)) not in self.cuts]


class Switch:
    """Carries out the orders of the standard input, and moves frames meanwhile."""

    def __init__(self) -> None:
        self._wiring = Wiring()
        self._devices: dict[str, int] = {}
        self._record: BinaryIO | None = None

    def run(self) -> None:
        """Return when the input ends."""
        while True:
            ready, _, _ = select.select([sys.stdin, *self._devices.values()], [], [])
            for node in [node for node, device in self._devices.items() if device in ready]:
                self._move(node)
            if sys.stdin in ready:
                line = sys.stdin.readline()
                if not line:
                    return
                self._obey(json.loads(line))
                sys.stdout.write("done\n")
                sys.stdout.flush()

    def _obey(self, order: Mapping[str, Any]) -> None:
        match order:
            case {"plug": str(node), "process": int(process)}:
                self._devices[node] = open_device(process)
                self._wiring.plug(node)
            case {"cuts": list(pairs)}:
                self._wiring.cuts = {frozenset(pair) for pair in pairs}
            case {"record": str(path)}:
                self._record_into(Path(path))

    def _record_into(self, path: Path) -> None:
        if self._record is not None:
            self._record.close()
        self._record = path.open("wb", buffering=0)
        self._record.write(PCAP_HEADER)

    def _move(self, node: str) -> None:
        """Pass on what a node has sent."""
        for _ in range(MAX_FRAMES_A_TURN):
            try:
                frame = os.read(self._devices[node], MAX_FRAME_BYTES)
            except BlockingIOError:
                return
            except OSError:  # the node is gone, and its device with it
                self._unplug(node)
                return
            if self._record is not None:
                now_s, rest_s = divmod(time.time(), 1.0)
                self._record.write(struct.pack("<IIII", int(now_s), int(rest_s * 1e6), len(frame), len(frame)) + frame)
            for target in self._wiring.take(node, frame):
                with suppress(OSError):  # as for a machine that is off
                    os.write(self._devices[target], frame)

    def _unplug(self, node: str) -> None:
        os.close(self._devices.pop(node))
        self._wiring.unplug(node)


@contextmanager
def inside(process: int) -> Iterator[None]:
    """Have this thread, and no other, see the network of a process."""
    with Path("/proc/thread-self/ns/net").open("rb") as home, Path(f"/proc/{process}/ns/net").open("rb") as network:
        _enter(network)
        try:
            yield
        finally:
            _enter(home)


def _enter(network: BinaryIO) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def open_device(process: int) -> int:
    """Make a network device in the network of a process; what is read and written are its frames."""
    with inside(process):
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TAP | IFF_NO_PI))
        return device


if __name__ == "__main__":
    Switch().run()
