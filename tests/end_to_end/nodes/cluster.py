"""A Ray cluster on nodes of a network, and a mesh on it.

The gateway has a node of its own, prompts are read on another one, and answers are written on others.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.load.client.http import Address
from mesh.errors import UserError
from tests.end_to_end.nodes.network import OWN, Network, Node, network

HEAD, CLIENT = "head", "client"  # nodes on which nothing of the mesh runs
NUM_OTHERS = 2  # hosts besides those of decode engines: the gateway's and the prefill engine's
REPOSITORY = Path(__file__).parents[3]
RUNTIME = f"{OWN}/mesh"
STORE_BYTES = 80 * 2**20
RAY_PORT, GATEWAY_PORT = 6379, 8370
NODE_CPUS = 2
URGENCY = {"RAY_worker_niceness": "0"}  # else Ray has its processes, and so the mesh, give way to all others
TRIES = 3  # Ray gives a node half a minute to start, which is short on a busy machine
START_S = 240.0
TOPOLOGY = Path(__file__).with_name("mesh.toml")


@dataclass(frozen=True, slots=True)
class NodeMesh:
    """A mesh on nodes. Processes are found by the file of its topology, which no other mesh has."""

    network: Network
    topology: Path

    def mesh(self, *arguments: str, limit_s: float = START_S) -> str:
        """Run `mesh` on the head's node, and return what it prints. Raise `UserError` if it fails."""
        done = self.network.nodes[HEAD].run(sys.executable, "-m", "mesh.cli", *arguments, limit_s=limit_s)
        if done.returncode:
            raise UserError(f"mesh {' '.join(arguments)}: {done.stdout}\n{done.stderr}")
        return done.stdout

    def join(self, name: str) -> None:
        """Have a node hold hosts."""
        address = f"--address={self.network.nodes[HEAD].address}:{RAY_PORT}"
        start_ray(self.network.nodes[name], address, f"--num-cpus={NODE_CPUS}")

    def add_spare(self) -> None:
        """Add a node on which there is room for a host."""
        node = self.network.add(f"n{len(self.network.nodes) - 1}")
        self.join(node.name)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.mesh("status", str(self.topology), "--json"))
        return found

    def is_ready(self) -> bool:
        """Say whether all engines are ready."""
        return all(row["state"] == "ready" for row in self.status()["engines"])

    def processes(self) -> list[psutil.Process]:
        """All processes of the mesh, on all nodes."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            is_alive = process.info["status"] != psutil.STATUS_ZOMBIE
            if is_alive and str(self.topology) in (process.info["cmdline"] or []):
                found.append(process)
        return found

    def process(self, name: str) -> psutil.Process:
        """A process of the mesh by its id."""
        return next(one for one in self.processes() if one.cmdline()[-1] == name)

    def node_of(self, name: str) -> Node:
        return self.network.home_of(self.process(name))

    @property
    def gateway(self) -> Address:
        return Address(self.node_of("gateway").address, GATEWAY_PORT)


@contextmanager
def mesh_on_nodes(folder: Path, model: Path, num_decodes: int = 2) -> Iterator[NodeMesh]:
    """A running mesh with a node for each host, and one for clients. ``folder``: an empty one."""
    topology = folder / "mesh.toml"
    topology.write_text(TOPOLOGY.read_text().format(model=model, port=GATEWAY_PORT, count=num_decodes))
    workers = [f"n{number + 1}" for number in range(NUM_OTHERS + num_decodes)]
    Path("/tmp/ray").mkdir(exist_ok=True)
    env = {"PYTHONPATH": str(REPOSITORY), "MESHSERVE_RUNTIME_DIR": RUNTIME, "RAY_TMPDIR": "/tmp", **URGENCY}
    with network(folder, (HEAD, CLIENT, *workers), env) as nodes:
        head = nodes.nodes[HEAD]
        start_ray(head, "--head", f"--port={RAY_PORT}", "--num-cpus=0", "--include-dashboard=false")
        found = NodeMesh(nodes, topology)
        for name in workers:
            found.join(name)
        found.mesh("up", str(topology), "--detach")
        yield found


def start_ray(node: Node, *options: str) -> None:
    """Have a node be a part of the cluster. Raise `UserError`."""
    ray = f"{Path(sys.executable).parent}/ray"
    common = (f"--node-ip-address={node.address}", f"--object-store-memory={STORE_BYTES}", "--disable-usage-stats")
    command = " ".join([ray, "start", *options, *common])
    for _ in range(TRIES):
        if node.run("sh", "-c", f"{command} > /tmp/ray/start.log 2>&1").returncode == 0:
            return
        node.run(ray, "stop", "--force")
    raise UserError(f"Ray did not start on {node.name}: {node.run('cat', '/tmp/ray/start.log').stdout}")
