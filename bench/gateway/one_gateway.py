"""A real gateway process before an engine that computes nothing."""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.gateway.servers import Server, process, started
from bench.live.ports import free_port

TOPOLOGY = """
[mesh]
name = "gateway-{port}"
log_level = "warning"
[services.model]
model = {model}
ttft_ms = 60000
tpot_ms = 60000
[gateways.gateway]
port = {port}
max_requests = 4096
[engines.engine]
role = "multiplex"
"""


def write_topology(folder: Path, model: str, port: int) -> Path:
    file = folder / "topology.toml"
    file.write_text(TOPOLOGY.format(port=port, model=json.dumps(model)))
    return file


@contextmanager
def one_gateway(name: str, model: str, step_ms: float) -> Iterator[Server]:
    """Ready, until the end of the block. The engine says a token of each request every ``step_ms``."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        file = write_topology(Path(folder), model, port)
        own = {"MESHSERVE_RUNTIME_DIR": folder}
        engine = command("bench.gateway.scripted_engine", file, "engine", str(step_ms))
        with started(name, port, command("router", file, "gateway"), None, own) as gateway, process(engine, None, own):
            gateway.until_it_answers()
            yield gateway


def command(module: str, topology: Path, process: str, *more: str) -> list[str]:
    return [sys.executable, "-m", module, *more, "--topology", str(topology), "--id", process]
