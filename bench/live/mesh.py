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

from bench.live.http_load import Answer, Load, Sending, answers_of
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.schema import PolicySpec, Topology

START_S = 900.0  # the first time, a model is fetched and measured
STOP_S = 120.0


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

    def use(self, policy: PolicySpec) -> None:
        """From now on. Raise `UserError` if the gateways do not take it."""
        settings = [f"{key}={json.dumps(value)}" for key, value in policy.parameters.items()]
        done = mesh_command(self.environment, STOP_S, "policy", str(self.topology.path), policy.name, *settings)
        if done.returncode:
            raise UserError(f"policy {policy.name}: {done.stderr.strip()}")

    def answers(
        self,
        sendings: Sequence[Sending],
        on_answer: Callable[[], None] = lambda: None,
        *,
        one_by_one: bool = False,
        keeps_text: bool = False,
    ) -> list[Answer]:
        """Send it all at its times, or each when the one before has ended; the answers in the same order."""
        model = self.topology.services[0].name
        return answers_of(Load(self.port, model, list(sendings), one_by_one, keeps_text), on_answer)


@contextmanager
def live_mesh(path: Path) -> Iterator[LiveMesh]:
    """The topology's mesh until the end of the block. Raise `UserError` if it does not start.

    It lives in a folder of its own, so that no other mesh is touched; only the gateway's port must be free.
    """
    topology = load(path)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"MESHSERVE_RUNTIME_DIR": folder}
        try:
            up = mesh_command(environment, START_S, "up", str(path), "--detach")
            if up.returncode:
                raise UserError(f"{path}: the mesh did not start: {(up.stdout + up.stderr).strip()}")
            yield LiveMesh(topology, topology.gateways[0].port, environment)
        finally:
            mesh_command(environment, STOP_S, "down", str(path), "--now")


def mesh_command(environment: Mapping[str, str], limit_s: float, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Raise `UserError` if it takes longer than that."""
    command = [sys.executable, "-m", "mesh.cli", *arguments]
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"`mesh {' '.join(arguments)}` did not end within {limit_s:g} s") from None
