"""Nodes as namespaces of the kernel: each has its own network, processes, shared memory and name.

A node ends, with all of its processes, when it is killed, and when the process ends that made it. Needs root.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil

from mesh.process.fork_server import SHARED
from tests.end_to_end.nodes import switch
from tests.end_to_end.nodes.switch import DEVICE, inside

NEEDED = ("unshare", "nsenter", "ip", "mount")
PREFIX = "10.78.0."
OWN = "/mnt"  # an empty folder of each node, which only root may see
SHARED_MEMORY = "256m"
QUEUE_FRAMES = 10_000  # that wait for the switch when it is held up
# The first process of a node; its standard input is its life. Nobody waits for those that lose their parents.
FIRST = """
trap '' CHLD
mount -t tmpfs -o size={memory} tmpfs /dev/shm && mount -t tmpfs -o mode=700 tmpfs {own} || exit 1
mount --bind {private} /tmp/ray && hostname {name} && ip link set lo up || exit 1
echo begun
exec cat
"""


def why_not() -> str:
    """Return why nodes cannot be made here; empty if they can."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        return f"{', '.join(missing)} is not installed"
    if os.getuid() != 0 or not Path("/dev/net/tun").exists():
        return "nodes need root and /dev/net/tun"
    tried = subprocess.run(["unshare", "-mnpu", "--fork", "true"], check=False, capture_output=True)
    return "" if tried.returncode == 0 else "namespaces are not allowed here"


class Node:
    """A machine of its own, as far as its processes can tell. ``private``: its folder, which it sees as /tmp/ray."""

    def __init__(self, name: str, address: str, private: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.address = address
        self._env = {**os.environ, SHARED: "", **env}  # its processes would be forked in this network
        first = FIRST.format(memory=SHARED_MEMORY, own=OWN, private=private, name=name)
        options = ("-mnpu", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
        self._holder = subprocess.Popen(
            ["unshare", *options, "bash", "-c", first],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where it says that it was killed
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"begun\n", f"{name} did not start"
        self.process = psutil.Process(self._holder.pid).children()[0].pid
        self._network = _network_of(self.process)

    def run(self, *command: str, limit_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """Run a command on the node. What it leaves running stays there."""
        inside = ["nsenter", "--target", str(self.process), "--mount", "--net", "--pid", "--uts", *command]
        return subprocess.run(inside, env=self._env, capture_output=True, text=True, timeout=limit_s, check=False)

    def entered(self) -> AbstractContextManager[None]:
        """Have the connections of this thread, and of what it starts, begin at the node until the end of the block."""
        return inside(self.process)

    def kill(self) -> None:
        """End it as the loss of power would: none of its processes does or says anything any more."""
        if self._holder.poll() is None:
            os.kill(self.process, signal.SIGKILL)
            _end(self._holder)

    def is_home_of(self, process: psutil.Process) -> bool:
        return _network_of(process.pid) == self._network


class Network:
    """Nodes and the switch between them. Use `network`."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.nodes: dict[str, Node] = {}
        self._folder = folder
        self._env = env
        self._switch = subprocess.Popen(
            [sys.executable, switch.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def add(self, name: str) -> Node:
        private = self._folder / name
        private.mkdir()
        node = Node(name, f"{PREFIX}{len(self.nodes) + 1}", private, self._env)
        self.nodes[name] = node
        self._order({"plug": name, "process": node.process})
        up = f"ip addr add {node.address}/24 dev {DEVICE} && ip link set {DEVICE} txqueuelen {QUEUE_FRAMES} up"
        assert node.run("sh", "-c", up).returncode == 0
        return node

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Let nothing pass between these pairs of nodes, and everything between others."""
        self._order({"cuts": [list(pair) for pair in pairs]})

    def record(self, path: Path) -> None:
        """Write all frames from now on to a file in the format of pcap."""
        self._order({"record": str(path)})

    def home_of(self, process: psutil.Process) -> Node:
        return next(node for node in self.nodes.values() if node.is_home_of(process))

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill()
        self._switch.kill()
        _end(self._switch)

    def _order(self, order: Mapping[str, object]) -> None:
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(json.dumps(order) + "\n")
        self._switch.stdin.flush()
        assert self._switch.stdout.readline() == "done\n", "the switch has ended"


@contextmanager
def network(folder: Path, names: Sequence[str], env: Mapping[str, str]) -> Iterator[Network]:
    """Nodes of these names, with nothing on them, until the end of the block."""
    found = Network(folder, env)
    try:
        for name in names:
            found.add(name)
        yield found
    finally:
        found.end()


def _end(process: "subprocess.Popen[Any]") -> None:
    """Wait for a process that was killed, and close what led to it."""
    with process:
        pass


def _network_of(process: int) -> int:
    return os.stat(f"/proc/{process}/ns/net").st_ino
