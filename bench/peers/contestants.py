"""Whole servers on the same cores, each behind one URL: meshes of this project, and vLLM.

All serve one model folder under the same name, in float32 but for the mesh that says otherwise, with as many threads
for computing as there are cores. Linux only: cores are given by affinity, which children inherit.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.gateway.servers import MODEL, started
from bench.live.mesh import START_S, live_mesh
from bench.live.ports import free_port
from mesh.errors import UserError

KV_GIB = 1  # of each engine
VLLM_ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB)}
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
    logs: Path


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers. ``pids``: its processes."""

    url: str
    pids: Sequence[int]


@contextmanager
def _mesh(scene: Scene, dtype: str = "float32", backend: str = "torch") -> Iterator[Running]:
    """A prefill and a multiplexing engine, as in deploy/topology.toml."""
    port = free_port()
    path = scene.logs / f"mesh-{port}.toml"
    engine = [f"threads = {len(scene.cores) // 2}", f'kv_memory = "{KV_GIB}GiB"', f'backend = "{backend}"']
    if backend == "vllm":
        engine += ["block_size = 32", f"python = {json.dumps(str(_vllm_python(scene)))}"]
    settings = {"port": port, "dtype": dtype, "ttft_ms": scene.ttft_ms, "tpot_ms": scene.tpot_ms}
    folder, words = json.dumps(str(scene.folder)), "\n".join(engine)
    path.write_text(TOPOLOGY.format(start_s=START_S, model=MODEL, folder=folder, engine=words, **settings))
    with live_mesh(path) as mesh:
        yield Running(f"http://127.0.0.1:{mesh.port}", mesh.pids())


@contextmanager
def _vllm(scene: Scene) -> Iterator[Running]:
    """``vllm serve`` with all cores."""
    port = free_port()
    threads = {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, scene.cores))}
    command = [str(_vllm_python(scene)), "-m", "vllm.entrypoints.cli.main", "serve", str(scene.folder)]
    command += ["--served-model-name", MODEL, "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    environment = VLLM_ENVIRONMENT | threads | dict(scene.vllm_env)
    with started("vLLM", port, command, scene.logs / "vllm.log", environment) as server:
        server.until_it_answers(START_S)
        yield Running(server.url, server.pids())


def _vllm_python(scene: Scene) -> Path:
    if scene.vllm_python is None:
        raise UserError("vLLM: say which interpreter has it with --vllm-python")
    return scene.vllm_python


CONTESTANTS: Mapping[str, Callable[[Scene], AbstractContextManager[Running]]] = {
    "mesh-torch": _mesh,
    "mesh-int8": partial(_mesh, dtype="int8"),
    "mesh-vllm": partial(_mesh, backend="vllm"),
    "vllm": _vllm,
}
