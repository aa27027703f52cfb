"""Whole servers on the same cores, each behind one URL: meshes of this project, and vLLM.

All serve one model folder under the name `MODEL`, in float32 but for the mesh that says otherwise, with as many threads
for computing as there are cores. Linux only: cores are given by affinity, which children inherit.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from bench.live.mesh import START_S, STOP_S, live_mesh
from bench.live.ports import free_port
from mesh.errors import UserError

MODEL = "model"
KV_GIB = 1  # of each engine
VLLM_ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
TOPOLOGY = """
[mesh]
name = "contest-{port}"
log_level = "warning"
start_s = {start_s:.0f}
[services.{model}]
model = {folder}
dtype = "{dtype}"
ttft_ms = {ttft_ms:g}
tpot_ms = {tpot_ms:g}
[engines.prefill]
role = "prefill"
{engine}
[engines.decode]
role = "multiplex"
{engine}
[gateways.gateway]
port = {port}
[policy]
name = "tropical"
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """What all are started with. Half of the ``cores`` are for each of two engines."""

    folder: Path
    ttft_ms: float
    tpot_ms: float
    cores: Sequence[int]
    vllm_python: Path | None
    vllm_env: Mapping[str, str]
    is_eager: bool
    logs: Path


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers. ``pids``: its processes."""

    url: str
    pids: Sequence[int]


# --- meshes -----------------------------------------------------------------------------------------------------------


@contextmanager
def _mesh(scene: Scene, dtype: str, engine: Sequence[str]) -> Iterator[Running]:
    """A prefill and a multiplexing engine, as in deploy/topology.toml."""
    port = free_port()
    path = scene.logs / f"mesh-{port}.toml"
    each = [f"threads = {len(scene.cores) // 2}", f'kv_memory = "{KV_GIB}GiB"', *engine]
    text = TOPOLOGY.format(
        port=port,
        start_s=START_S,
        model=MODEL,
        folder=json.dumps(str(scene.folder)),
        dtype=dtype,
        ttft_ms=scene.ttft_ms,
        tpot_ms=scene.tpot_ms,
        engine="\n".join(each),
    )
    path.write_text(text)
    with live_mesh(path) as mesh:
        yield Running(f"http://127.0.0.1:{mesh.port}", mesh.pids())


def mesh_of_torch(scene: Scene) -> AbstractContextManager[Running]:
    return _mesh(scene, "float32", ())


def mesh_of_int8(scene: Scene) -> AbstractContextManager[Running]:
    return _mesh(scene, "int8", ())


def mesh_of_vllm(scene: Scene) -> AbstractContextManager[Running]:
    options = f"options = {{ enforce_eager = {str(scene.is_eager).lower()} }}"
    python = f"python = {json.dumps(str(_vllm_python(scene)))}"
    return _mesh(scene, "float32", ('backend = "vllm"', "block_size = 32", python, options))


# --- vLLM -------------------------------------------------------------------------------------------------------------


@contextmanager
def one_vllm(scene: Scene) -> Iterator[Running]:
    """``vllm serve`` with all cores."""
    with _vllm(scene) as server:
        _wait(server, scene)
        yield Running(server.url, server.pids())


@dataclass(frozen=True, slots=True)
class _Server:
    name: str
    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def pids(self) -> list[int]:
        """Its own, and of all that it started."""
        return [self.process.pid, *(child.pid for child in psutil.Process(self.process.pid).children(recursive=True))]

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or "nothing"


def _vllm(scene: Scene) -> AbstractContextManager[_Server]:
    port = free_port()
    environment = {
        **VLLM_ENVIRONMENT,
        "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, scene.cores)),
        **scene.vllm_env,
    }
    command = [str(_vllm_python(scene)), "-m", "vllm.entrypoints.cli.main", "serve", str(scene.folder)]
    command += ["--served-model-name", MODEL, "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--enforce-eager"] if scene.is_eager else []
    return _server("vLLM", port, command, environment, scene.logs)


def _vllm_python(scene: Scene) -> Path:
    if scene.vllm_python is None:
        raise UserError("vLLM: say which interpreter has it with --vllm-python")
    return scene.vllm_python


@contextmanager
def _server(
    name: str, port: int, command: Sequence[str], environment: Mapping[str, str], logs: Path
) -> Iterator[_Server]:
    """In a process group of its own, which ends with the block."""
    log = logs / f"{name}-{port}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    server = _Server(name, f"http://127.0.0.1:{port}", process, log)
    try:
        yield server
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(server: _Server, scene: Scene) -> None:
    """Until it answers a request. Raise `UserError` if it ends, or takes too long."""
    deadline = time.monotonic() + START_S
    asked = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 2}
    with httpx.Client(timeout=60.0) as client:
        while time.monotonic() < deadline and server.process.poll() is None:
            try:
                if client.post(f"{server.url}/v1/completions", json=asked).is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.5)
    raise UserError(f"{server.name} did not start with {scene.folder}; its last words: {server.last_words()}")


CONTESTANTS: Mapping[str, Callable[[Scene], AbstractContextManager[Running]]] = {
    "mesh-torch": mesh_of_torch,
    "mesh-int8": mesh_of_int8,
    "mesh-vllm": mesh_of_vllm,
    "vllm": one_vllm,
}
