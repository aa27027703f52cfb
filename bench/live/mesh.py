"""A whole mesh on this machine, started and stopped by the command that users type, and loaded by a client process."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.live.sending import send, shapes_of, token_prompts
from bench.load.client.http import Address
from bench.load.generator.wire import Pace
from bench.load.leaving import leaving_at_sigterm
from bench.load.results.outcome import Outcome
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from simulation.loads.trace_request import TraceRequest

START_S = 900.0  # the first time, a model is fetched and measured
STOP_S = 120.0
PATIENT = '[mesh]\nname = "live"\nlog_level = "warning"\nlease_ms = 5000\nstart_s = 600\n'  # of a busy machine
WARM_UP_REQUESTS, WARM_UP_PROMPT, WARM_UP_ANSWER = 4, 256, 16


@dataclass(frozen=True, slots=True)
class LiveMesh:
    topology: Topology
    port: int
    environment: dict[str, str]

    def status(self) -> dict[str, Any]:
        """What `mesh status --json` says."""
        told = mesh_command(self.environment, STOP_S, "status", str(self.topology.path), "--json").stdout
        return json.loads(told)  # type: ignore[no-any-return]

    def pids(self) -> list[int]:
        """Of its engines and gateways."""
        status = self.status()
        return [int(process["pid"]) for process in (*status["engines"], *status["gateways"])]

    def total(self, count: str) -> int:
        """Sum a count of the engines' statuses over all engines."""
        return sum(int(engine[count]) for engine in self.status()["engines"])

    def answers(
        self,
        requests: Sequence[TraceRequest],
        seed: int,
        *,
        one_by_one: bool = False,
        keeps_text: bool = False,
        heard: Callable[[int], None] = lambda num_ended: None,
    ) -> list[Outcome]:
        """Send it all at its times, or each when the one before has ended; the outcomes in the same order."""
        address, shapes = Address("127.0.0.1", self.port), shapes_of(requests, self.topology.services[0].name)
        pace = Pace(num_slots=1) if one_by_one else Pace(tuple(one.at_s for one in requests))
        return send(address, token_prompts(seed), shapes, pace, keeps_text=keeps_text, heard=heard)


@contextmanager
def live_mesh(path: Path) -> Iterator[LiveMesh]:
    """The topology's mesh until the end of the block. Raise `UserError` if it does not start.

    It lives in a folder of its own, so that no other mesh is touched; only the gateway's port must be free.
    """
    topology = load(path)
    with tempfile.TemporaryDirectory() as folder, leaving_at_sigterm():
        environment = os.environ | {"MESHSERVE_RUNTIME_DIR": folder}
        try:
            up = mesh_command(environment, START_S, "up", str(path), "--detach")
            if up.returncode:
                raise UserError(f"{path}: the mesh did not start: {(up.stdout + up.stderr).strip()}")
            yield LiveMesh(topology, topology.gateways[0].port, environment)
        finally:
            mesh_command(environment, STOP_S, "down", str(path), "--now")


@contextmanager
def mesh_of(text: str) -> Iterator[LiveMesh]:
    """The mesh of a topology that is written for it. Raise `UserError` if it does not start."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "topology.toml"
        path.write_text(text)
        with live_mesh(path) as mesh:
            yield mesh


@contextmanager
def warm_mesh(text: str) -> Iterator[LiveMesh]:
    """The mesh of a topology without a table ``mesh``, which has served a few requests of each service.

    Memory that was never written and code that never ran are slower. Raise `UserError` if it does not start.
    """
    with mesh_of(PATIENT + text) as mesh:
        names = [service.name for service in mesh.topology.services] * WARM_UP_REQUESTS
        requests = [TraceRequest(0.0, WARM_UP_PROMPT, WARM_UP_ANSWER, service=name) for name in names]
        mesh.answers(requests, seed=-1)
        yield mesh


def mesh_command(environment: Mapping[str, str], limit_s: float, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Raise `UserError` if it takes longer than that."""
    command = [sys.executable, "-m", "mesh.cli", *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            said = running.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise UserError(f"`mesh {' '.join(arguments)}` did not end within {limit_s:g} s") from None
        finally:
            running.terminate()  # what has not ended takes down what it has begun
        return subprocess.CompletedProcess(command, running.returncode, *said)
