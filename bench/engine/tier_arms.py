"""What `bench.engine.kv_tiers` compares: meshes with KV tiers and without, and vLLM with as much KV memory."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from bench.harness.machine import cpu_s
from bench.live.mesh import PATIENT, STOP_S, LiveMesh, mesh_command, mesh_of
from bench.live.ports import free_port
from bench.live.servers import MODEL, Server
from bench.live.vllm import vllm_server
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from kvtransfer.layout import block_bytes
from mesh.errors import UserError
from mesh.topology.values import size
from mesh.wire.transfers import KVShape

VLLM = "vllm"
ARMS = ("off", "host", "both", "peers", VLLM)
BLOCK = 32  # tokens of a block in vLLM, whose kernels for CPUs want a multiple of that
NULL_BLOCKS = 1  # that vLLM never hands out
TOPOLOGY = """
[services.{name}]
model = "{model}"
dtype = "{dtype}"
ttft_ms = 60000
tpot_ms = 1000
[engines.engine]
count = {count}
device = "{device}"
kv_memory = "{pool}"
[gateways.gateway]
port = {port}
[policy]
name = "kv_aware"
{tiers}
"""


class Arm(Protocol):
    """Serves the conversations as `MODEL`."""

    @property
    def port(self) -> int: ...

    def cpu_s(self) -> float:
        """CPU time until now of what computes."""

    def begin_turn(self, number: int) -> None:
        """The next requests are those of a turn."""

    def engines(self) -> list[dict[str, Any]]:
        """Rows of `mesh status`; none of vLLM."""


class MeshArm:
    def __init__(self, mesh: LiveMesh) -> None:
        self._mesh = mesh
        self.port = mesh.port

    def cpu_s(self) -> float:
        return cpu_s(row["pid"] for row in self.engines())

    def begin_turn(self, number: int) -> None:
        """Let one engine serve, and the others only give what they have."""
        names = [engine.id for engine in self._mesh.topology.engines]
        for index, name in enumerate(names if len(names) > 1 else ()):
            undo = ["--undo"] if index == number % len(names) else []
            mesh_command(self._mesh.environment, STOP_S, "drain", str(self._mesh.topology.path), name, *undo)

    def engines(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._mesh.status()["engines"]
        return rows


class VllmArm:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.port = server.port

    def cpu_s(self) -> float:
        return cpu_s(self._server.pids())

    def begin_turn(self, number: int) -> None:
        pass

    def engines(self) -> list[dict[str, Any]]:
        return []


@contextmanager
def running(options: argparse.Namespace, arm: str) -> Iterator[Arm]:
    """Start it; it has served nothing yet. Raise `UserError` if it does not start."""
    if arm == VLLM:
        if options.vllm_python is None:
            raise UserError(f"{VLLM} needs --vllm-python")
        command = vllm_options(options)
        with vllm_server(options.vllm_python, options.model, dict(options.vllm_env), command) as server:
            yield VllmArm(server)
        return
    with TemporaryDirectory(dir="/dev/shm") as memory, TemporaryDirectory() as disk:
        tiers = tiers_of(arm, size(options.room), memory, Path(disk) / "disk")
        pool, count = (options.room, 2) if arm == "peers" else (options.pool, 1)
        engines = {"model": options.model, "dtype": options.dtype, "device": options.device}
        text = TOPOLOGY.format(**engines, name=MODEL, pool=pool, count=count, port=free_port(), tiers=tiers)
        with mesh_of(PATIENT + text) as mesh:
            yield MeshArm(mesh)


def tiers_of(arm: str, room: int, memory: str, disk: Path) -> str:
    """The topology's table. ``room``: bytes for all conversations."""
    if arm == "off":
        return ""
    if arm == "peers":
        return f'[kv_tiers]\nhost = "1MiB"\nhost_folder = "{memory}/host"\npeers = true\n'
    host = room if arm == "host" else room // 8
    table = f'[kv_tiers]\nhost = "{host}B"\nhost_folder = "{memory}/host"\n'
    return table if arm == "host" else f'{table}disk = "{room}B"\ndisk_folder = "{disk}"\n'


def vllm_options(options: argparse.Namespace) -> list[str]:
    """Of `vllm serve`, so that as many tokens fit into its KV memory as into that of a mesh's engine."""
    num_blocks = size(options.pool) // bytes_of_block(options.model, options.dtype)
    longest = options.first + (options.turns - 1) * options.turn_tokens + options.answer + BLOCK
    given = ["--dtype", options.dtype, "--block-size", str(BLOCK), "--max-model-len", str(longest)]
    given += ["--num-gpu-blocks-override", str(num_blocks + NULL_BLOCKS), "--enable-prefix-caching"]
    return [*given, "--enable-prompt-tokens-details"]


def bytes_of_block(model: str, dtype: str) -> int:
    """Of a block in vLLM. Raise `ModelError` if the model is not prepared."""
    config = ModelConfig.load(prepared_dir(model))
    return block_bytes(KVShape(config.num_layers, config.num_kv_heads, config.head_dim, BLOCK, dtype))
