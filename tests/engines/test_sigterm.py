"""Engine processes that are asked to end while they hold requests and KV: nothing is lost, and they end soon."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.transfer.engine_client import EngineClient, engine_processes
from mesh.process.runtime_folder import make_runtime_dir
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.requests import Epoch, RequestSpec, Sampling, Submit
from tests.models.tiny_llama import write_tiny_model
from tests.seeds import is_night

pytestmark = pytest.mark.timeout(300)

DEADLINE_S = 60.0
TOPOLOGY = """
[mesh]
name = "end"
lease_ms = 3000
[services.tiny]
model = "{model}"
ttft_ms = 1000
tpot_ms = 100
[engines.prefill]
role = "prefill"
kv_memory = "2MiB"
chunk_tokens = 16
[engines.decode]
count = 2
role = "multiplex"
kv_memory = "2MiB"
chunk_tokens = 32
[gateways.gateway]
port = 18099
[transfer]
checksum = true
transport = "{transport}"
"""
Processes = dict[str, subprocess.Popen[bytes]]


@pytest.fixture(params=["shm", "tcp"] if is_night() else ["tcp"])
def topology(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topology:
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("MESHSERVE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "topology.toml"
    file.write_text(TOPOLOGY.format(model=write_tiny_model(tmp_path / "model"), transport=request.param))
    topology = load(file)
    make_runtime_dir(topology)
    return topology


@pytest.fixture
def engines(topology: Topology) -> Iterator[Processes]:
    with engine_processes(topology) as processes:
        yield processes


def spec(name: str, num_prompt: int, max_tokens: int) -> RequestSpec:
    prompt = [(7 * index) % 250 for index in range(num_prompt)]
    sampling = Sampling(max_tokens=max_tokens, seed=5, temperature=0.8, ignore_eos=True)
    return RequestSpec(name, "gateway", "tiny", prompt, sampling, 10.0, 1.0)


async def test_engines_that_are_asked_to_end_one_after_another_lose_nothing(topology: Topology, engines: Processes):
    """First the prefill engine, as soon as it computes a prompt; then one that decodes; then the last one."""
    async with EngineClient(topology).running() as gateway:
        await gateway.all_ready()
        await hands_over_what_it_has_begun(gateway, engines["prefill"])
        await moves_what_it_decodes(gateway, engines["decode-0"])
        await ends_what_nobody_else_could(gateway, engines["decode-1"])


async def undisturbed(gateway: EngineClient, num_prompt: int, max_tokens: int) -> list[int]:
    name = f"undisturbed-{max_tokens}"
    gateway.sockets.send("decode-0", Submit(spec(name, num_prompt, max_tokens), Epoch(1)))
    await gateway.until(lambda: name in gateway.finished)
    return gateway.streams[name]


async def hands_over_what_it_has_begun(gateway: EngineClient, prefill: subprocess.Popen[bytes]) -> None:
    expected = await undisturbed(gateway, 300, 40)
    names = ("p0", "p1", "p2")
    for index, name in enumerate(names):
        gateway.sockets.send("prefill", Submit(spec(name, 300, 40), Epoch(1), f"decode-{index % 2}"))
    await gateway.until(lambda: gateway.statuses["prefill"].prefill_remaining_s > 0)
    prefill.send_signal(signal.SIGTERM)
    refused = gateway.refusals
    await gateway.until(lambda: all(n in gateway.finished or n in {one.request for one in refused} for n in names))
    begun = set(names) - {one.request for one in refused}
    assert begun, "the prompt that was being computed is handed over"
    for name in begun:
        assert gateway.streams[name] == expected
        assert gateway.owners[name].startswith("decode")
    assert {one.code for one in refused} <= {"draining"}
    assert prefill.wait(DEADLINE_S) == 0
    refused.clear()


async def moves_what_it_decodes(gateway: EngineClient, decode: subprocess.Popen[bytes]) -> None:
    expected, names = await undisturbed(gateway, 60, 900), ("d0", "d1", "d2")
    for name in names:
        gateway.sockets.send("decode-0", Submit(spec(name, 60, 900), Epoch(1)))
    await gateway.until(lambda: all(name in gateway.streams for name in names))
    decode.send_signal(signal.SIGTERM)
    await gateway.until(lambda: all(name in gateway.finished for name in names))
    for name in names:
        assert gateway.streams[name] == expected
        assert gateway.owners[name] == "decode-1"
    assert gateway.refusals == []
    assert decode.wait(DEADLINE_S) == 0


async def ends_what_nobody_else_could(gateway: EngineClient, last: subprocess.Popen[bytes]) -> None:
    names = ("l0", "l1", "l2")
    for name in names:
        gateway.sockets.send("decode-1", Submit(spec(name, 60, 300), Epoch(1)))
    await gateway.until(lambda: all(name in gateway.streams for name in names))
    last.send_signal(signal.SIGTERM)
    await gateway.until(lambda: all(name in gateway.finished for name in names))
    assert gateway.refusals == []
    assert all(len(gateway.streams[name]) == 300 for name in names)
    assert last.wait(DEADLINE_S) == 0
