"""An engine whose step does not end says so, and serves on when it ends after all."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.transfer.engine_client import EngineClient
from engines.loading import load as load_engine
from engines.process import EngineProcess
from engines.scheduling.batch import Batch, StepExecutor, StepResult
from engines.step_failures import stuck_steps as watch
from kvtransfer.peer_memories import PeerMemories
from mesh.process.process import ProcessShell
from mesh.process.runtime_folder import make_runtime_dir
from mesh.sockets.sockets import Sockets
from mesh.topology.parse import load
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineMessage
from mesh.wire.requests import Epoch, RequestSpec, Sampling, Submit
from mesh.wire.transfers import KVShape
from tests.models.tiny_llama import write_tiny_model

TOPOLOGY = """
[mesh]
name = "stuck"
heartbeat_ms = 50
[services.tiny]
model = "{model}"
[engines.engine]
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[gateways.gateway]
port = 18099
"""


class Gate:
    """Holds up every step while it is shut."""

    def __init__(self, inner: StepExecutor) -> None:
        self.is_open = threading.Event()
        self._inner = inner

    def shape(self, service: str) -> KVShape:
        return self._inner.shape(service)

    def execute(self, batch: Batch) -> StepResult:
        assert self.is_open.wait(60.0)
        return self._inner.execute(batch)

    def recover(self, *, frees_memory: bool) -> None:
        self._inner.recover(frees_memory=frees_memory)


async def test_a_step_that_does_not_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(watch, "LEAST_S", 0.3)
    monkeypatch.setattr(watch, "FIRST_LEAST_S", 0.3)
    file = tmp_path / "topology.toml"
    file.write_text(TOPOLOGY.format(model=write_tiny_model(tmp_path / "model")))
    topology = load(file)
    make_runtime_dir(topology)
    shell, peers = ProcessShell(topology, Sender("engine", 1)), PeerMemories()
    sockets: Sockets[EngineMessage] = shell.sockets(EngineMessage)
    loaded = load_engine(topology, topology.engines[0], peers)
    gate = loaded.executor = Gate(loaded.executor)
    with ThreadPoolExecutor(1) as compute:
        process = EngineProcess(shell, topology.engines[0], sockets, loaded, peers, compute)
        running = asyncio.create_task(process.run())
        async with EngineClient(topology).running() as gateway:
            await gateway.all_ready()
            sampling = Sampling(max_tokens=3, seed=1, ignore_eos=True)
            spec = RequestSpec("r", "gateway", "tiny", [1, 2, 3], sampling, 10.0, 1.0)
            gateway.sockets.send("engine", Submit(spec, Epoch(1)))
            await gateway.until(lambda: gateway.statuses["engine"].state is ProcessState.STUCK)
            error = gateway.statuses["engine"].error
            assert error is not None
            assert error.startswith("a step of tiny has been running for 0.")
            gate.is_open.set()
            await gateway.until(lambda: "r" in gateway.finished)
            await gateway.until(lambda: gateway.statuses["engine"].state is ProcessState.READY)
        shell.drain.set()
        await running
    await sockets.close()
