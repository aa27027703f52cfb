"""Gateways of ours, backends that compute nothing, and routers of others, as servers of this machine that answer."""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.live.ports import free_port
from bench.live.servers import MODEL, Server, started

ENGINE = "engine"
OURS = f"""
[mesh]
log_level = "warning"
[services.{MODEL}]
model = {{model}}
ttft_ms = 60000
tpot_ms = 60000
[gateways.gateway]
port = {{port}}
max_requests = 4096
[engines.{ENGINE}]
role = "multiplex"
"""
FORWARDING = f"""
[mesh]
log_level = "warning"
[services.{MODEL}]
ttft_ms = {{ttft_ms}}
tpot_ms = {{tpot_ms}}
[policy]
name = {{policy}}
[gateways.gateway]
port = {{port}}
max_requests = 4096
[engines.server]
backend = "openai"
url = {{urls}}
max_running = {{max_running}}
"""


@contextmanager
def one_gateway(name: str, model: str, step_ms: float) -> Iterator[Server]:
    """Start a gateway before an engine that says a token of each request every ``step_ms`` and computes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        file = write_topology(Path(folder), model, port)
        engine = [sys.executable, "-m", "bench.gateway.scripted_engine", str(step_ms)]
        engine += ["--topology", str(file), "--id", ENGINE]
        with started(ENGINE, 0, engine, _runtime(file), answers_within_s=None), _gateway(name, file, port) as gateway:
            yield gateway


@contextmanager
def forwarding_gateway(
    name: str,
    urls: Sequence[str],
    promise_ms: tuple[float, float] = (60_000, 60_000),
    policy: str = "tropical",
    max_running: int = 4096,
) -> Iterator[Server]:
    """Start a gateway before these servers, to which it passes everything on. ``promise_ms``: TTFT and TPOT."""
    with tempfile.TemporaryDirectory() as folder:
        port, file, (ttft_ms, tpot_ms) = free_port(), Path(folder) / "topology.toml", promise_ms
        settings = {"urls": json.dumps(list(urls)), "policy": json.dumps(policy), "max_running": max_running}
        file.write_text(FORWARDING.format(port=port, ttft_ms=ttft_ms, tpot_ms=tpot_ms, **settings))
        with _gateway(name, file, port) as gateway:
            yield gateway


def write_topology(folder: Path, model: str, port: int) -> Path:
    file = folder / "topology.toml"
    file.write_text(OURS.format(port=port, model=json.dumps(model)))
    return file


def _gateway(name: str, file: Path, port: int) -> AbstractContextManager[Server]:
    command = [sys.executable, "-m", "router", "--topology", str(file), "--id", "gateway"]
    return started(name, port, command, _runtime(file))


def _runtime(file: Path) -> dict[str, str]:
    return {"MESHSERVE_RUNTIME_DIR": str(file.parent)}


def mock_backend(name: str, *options: str) -> AbstractContextManager[Server]:
    """Start a server that computes nothing (`bench.load.mock_backend`)."""
    port = free_port()
    command = [sys.executable, "-m", "bench.load.mock_backend", "--port", str(port), "--model", MODEL, *options]
    return started(name, port, command)


def others_router(name: str, folder: Path, urls: Sequence[str], policy: str) -> AbstractContextManager[Server]:
    """Start ``vllm-router`` or ``smg``, as the folder has it, before these servers."""
    port, scraped = free_port(), free_port()
    command = [f"{folder}/{name}", *(["launch"] if name == "smg" else []), "--worker-urls", *urls, "--policy", policy]
    command += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(scraped)]
    return started(name, port, command)
