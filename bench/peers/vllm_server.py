"""``vllm serve`` on cores of this machine, for comparisons with it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.live.ports import free_port
from bench.live.servers import MODEL, Server, started
from mesh.errors import UserError

START_S = 900.0  # it may compile for minutes
KV_GIB = 1
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB)}


@contextmanager
def vllm_server(
    python: Path | None, folder: Path, cores: Sequence[int], environment: Mapping[str, str], *options: str
) -> Iterator[Server]:
    """Serve the model of a folder in float32. Raise `UserError` if the interpreter was not said, or has no vLLM."""
    if python is None:
        raise UserError("say which interpreter has vLLM with --vllm-python")
    port, own = free_port(), ",".join(map(str, cores))
    command = ["taskset", "-c", own, str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(folder), *options]
    command += ["--served-model-name", MODEL, "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    with started("vLLM", port, command, ENVIRONMENT | {"VLLM_CPU_OMP_THREADS_BIND": own, **environment}) as server:
        server.until_it_answers(START_S)
        yield server
