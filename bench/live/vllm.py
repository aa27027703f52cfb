"""vLLM as a server of this machine, beside which meshes and twins are measured."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.live.ports import free_port
from bench.live.servers import MODEL, Server, started
from engines.models.store import prepared_dir

ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
START_S = 900.0  # compiling included


@contextmanager
def vllm_server(
    python: Path, model: str, environment: Mapping[str, str], options: Sequence[str], *, before: Sequence[str] = ()
) -> Iterator[Server]:
    """Serve a prepared model with `vllm serve`, computing in one thread on the last core that this process may use.

    ``options``: of the command. ``before``: what the command is given to, such as taskset. Raise `UserError` if it does
    not start.
    """
    port = free_port()
    command = [*before, str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(prepared_dir(model))]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port), *options]
    settings = ENVIRONMENT | {"VLLM_CPU_OMP_THREADS_BIND": str(last_core()), **environment}
    with started("vLLM", port, command, settings, answers_within_s=START_S) as server:
        yield server


def last_core() -> int:
    return max(os.sched_getaffinity(0))
