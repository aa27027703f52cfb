"""Real engine processes on loopback: the test is their gateway."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.transfer.engine_client import BEAT_S, EngineClient, engine_processes
from engines.costs.profiles import ProfileFile
from mesh.directory import directory
from mesh.errors import EXIT_CONFIGURATION
from mesh.process.garbage import COLLECT_AFTER
from mesh.process.runtime_folder import make_runtime_dir
from mesh.sockets.sockets import Sockets
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.control import Drain, Migrate
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineMessage
from mesh.wire.requests import Cancel, Epoch, RequestSpec, Sampling, Submit
from mesh.wire.status import DecodeCost, PrefillCost
from mesh.wire.transfers import Reserve
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

DEADLINE_S = 60.0
TOPOLOGY = """
[mesh]
name = "engines-under-test"
lease_ms = 1500
[services.tiny]
model = "{model}"
ttft_ms = 1000
tpot_ms = 100
[engines.prefill]
role = "prefill"
backend = "{backend}"
profile = "fast.toml"
kv_memory = "2MiB"
chunk_tokens = 32
[engines.decode]
role = "multiplex"
backend = "{backend}"
profile = "fast.toml"
kv_memory = "2MiB"
chunk_tokens = 32
[gateways.gateway]
port = 18099
[transfer]
checksum = true
transport = "{transport}"
"""


def request(name: str, num_prompt: int, max_tokens: int, **overrides: object) -> RequestSpec:
    sampling = Sampling(max_tokens=max_tokens, seed=5, temperature=0.0, ignore_eos=True)
    prompt = [(7 * index + len(name)) % 250 for index in range(num_prompt)]
    values = {"id": name, "gateway": "gateway", "service": "tiny", "prompt": prompt, "sampling": sampling}
    return RequestSpec(**(values | {"slo_ttft_s": 10.0, "slo_tpot_s": 1.0} | overrides))  # type: ignore[arg-type]


FAST = ProfileFile(
    name="fast",
    source="nowhere",
    kv_bytes_per_token=1024,
    kv_memory_bytes=2**22,
    prefill=PrefillCost(1e-3, 2e-5),
    decode=DecodeCost(1e-3, 1e-4),
)


TORCH, SIMULATED = ("torch", "auto"), ("simulated", "tcp")  # blocks cross either way, whatever computes them
BACKENDS = [TORCH, SIMULATED]


@pytest.fixture(scope="module", params=BACKENDS, ids="-".join)
def topology(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    folder = tmp_path_factory.mktemp("engines")
    backend, transport = request.param
    text = TOPOLOGY.format(model=write_tiny_model(folder / "model"), backend=backend, transport=transport)
    (folder / "topology.toml").write_text(text)
    (folder / "fast.toml").write_text(FAST.text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))  # a socket's name may have 107 bytes
        patch.setenv("MESHSERVE_CACHE", str(folder / "cache"))
        topology = load(folder / "topology.toml")
        make_runtime_dir(topology)
        yield topology


@pytest.fixture(scope="module")
def engines(topology: Topology) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Of the first tests, of which the last ends them."""
    with engine_processes(topology) as processes:
        yield processes


@pytest.fixture
def fresh(topology: Topology) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """For tests that leave them as nobody else can use them."""
    with engine_processes(topology) as processes:
        yield processes


async def test_prefilled_on_one_process_and_decoded_on_another(
    topology: Topology, engines: dict[str, subprocess.Popen[bytes]]
):
    async with EngineClient(topology).running() as gateway:
        await gateway.all_ready()
        specs = [request(f"r{index}", 20 + 45 * index, 12) for index in range(4)]
        for spec in specs:  # alone on one engine: what the tokens should be
            gateway.sockets.send("prefill", Submit(spec, Epoch(1)))
        await gateway.until(lambda: len(gateway.finished) == 4)
        expected = {name: list(tokens) for name, tokens in gateway.streams.items()}
        again = [request(spec.id + "-again", 0, 12, prompt=spec.prompt) for spec in specs]
        for spec in again:
            gateway.sockets.send("prefill", Submit(spec, Epoch(1), "decode"))
        await gateway.until(lambda: len(gateway.finished) == 8)
        for spec in specs:
            assert gateway.streams[spec.id + "-again"] == expected[spec.id]
            assert gateway.owners[spec.id + "-again"] == "decode"
            assert len(expected[spec.id]) == 12
        assert gateway.refusals == []
        await gateway.until(lambda: gateway.is_idle("prefill") and gateway.is_idle("decode"))


def migrations(gateway: EngineClient) -> list[int]:
    """Done and aborted ones of the one engine and the other."""
    statuses = [gateway.statuses[engine] for engine in ("prefill", "decode")]
    return [total for one in statuses for total in (one.migrations_total, one.migrations_aborted_total)]


async def test_tokens_are_the_same_wherever_a_request_moves(
    topology: Topology, engines: dict[str, subprocess.Popen[bytes]]
):
    """They are sampled by a seed: a wrong probability or a wrong place in the stream of random numbers would show."""
    sampling = Sampling(max_tokens=900, seed=11, temperature=0.8, ignore_eos=True)
    async with EngineClient(topology).running() as gateway:
        await gateway.all_ready()
        before = migrations(gateway)
        stay, move = "stays", "moves"
        stays, moves = (request(name, 77, 0, prompt=list(range(3, 80)), sampling=sampling) for name in (stay, move))
        gateway.sockets.send("prefill", Submit(stays, Epoch(1)))
        await gateway.until(lambda: stay in gateway.finished)
        gateway.sockets.send("prefill", Submit(moves, Epoch(1)))
        at, to, num_moves = "prefill", "decode", 0
        while num_moves < 3:
            num_tokens = len(gateway.streams.get(move, []))
            await gateway.until(lambda want=num_tokens + 40: len(gateway.streams.get(move, [])) >= want)
            gateway.sockets.send(at, Migrate(move, to, "test"))
            await gateway.until(lambda owner=to: gateway.owners[move] == owner)
            at, to, num_moves = to, at, num_moves + 1
        await gateway.until(lambda: move in gateway.finished)
        assert gateway.streams[move] == gateway.streams[stay]
        assert gateway.refusals == []
        await gateway.until(lambda: gateway.is_idle("prefill") and gateway.is_idle("decode"))
        assert [now - then for now, then in zip(migrations(gateway), before, strict=True)] == [2, 0, 1, 0]


async def hand_over(gateway: EngineClient, spec: RequestSpec, prefill_engine: str, to: str) -> Epoch:
    """Submit a request, anew whenever an engine refuses it, as gateways do, until ``to`` has it."""
    epoch = Epoch(1)
    while True:
        num_refusals = len(gateway.refusals)
        gateway.sockets.send(prefill_engine, Submit(spec, epoch, to))
        await gateway.until(lambda: gateway.owners.get(spec.id) == to or len(gateway.refusals) > num_refusals)  # noqa: B023
        if gateway.owners.get(spec.id) == to:
            return epoch
        epoch = Epoch(epoch.attempt + 1)
        await asyncio.sleep(BEAT_S)


async def test_what_a_held_up_engine_did_not_take_it_takes_when_it_is_sent_again(
    topology: Topology, engines: dict[str, subprocess.Popen[bytes]]
):
    async with EngineClient(topology).running() as gateway:
        await gateway.all_ready()
        engines["decode"].send_signal(signal.SIGSTOP)
        taken = asyncio.create_task(hand_over(gateway, request("held-up", 60, 5), "prefill", "decode"))
        await gateway.until(lambda: gateway.refusals)
        engines["decode"].send_signal(signal.SIGCONT)
        assert (await taken).attempt > 1
        await gateway.until(lambda: "held-up" in gateway.finished)
        assert len(gateway.streams["held-up"]) == 5
        await gateway.until(lambda: gateway.is_idle("prefill") and gateway.is_idle("decode"))


async def test_cancel_and_drain_leave_nothing(topology: Topology, engines: dict[str, subprocess.Popen[bytes]]):
    async with EngineClient(topology).running() as gateway:
        await gateway.all_ready()
        epoch = await hand_over(gateway, request("endless", 100, 1500), "prefill", "decode")
        for engine in engines:
            gateway.sockets.send(engine, Cancel("endless", Epoch(epoch.attempt, 99)))
        await gateway.until(lambda: gateway.is_idle("prefill") and gateway.is_idle("decode"))
        gateway.sockets.send("decode", Submit(request("last", 30, 40), Epoch(1)))
        await gateway.until(lambda: "last" in gateway.streams)
        for process in engines.values():
            process.send_signal(signal.SIGTERM)
        await gateway.until(lambda: "last" in gateway.finished)
        assert len(gateway.streams["last"]) == 40
    assert [process.wait(DEADLINE_S) for process in engines.values()] == [0, 0]


@pytest.mark.parametrize("topology", [SIMULATED], ids="-".join, indirect=True)
async def test_a_dead_decode_engine_gives_the_request_back(
    topology: Topology, fresh: dict[str, subprocess.Popen[bytes]]
):
    async with EngineClient(topology).running() as gateway:
        await gateway.all_ready()
        fresh["decode"].send_signal(signal.SIGSTOP)
        gateway.sockets.send("prefill", Submit(request("r", 60, 5), Epoch(1), "decode"))
        await gateway.until(lambda: gateway.refusals)
        await gateway.until(lambda: gateway.is_idle("prefill"))
        gateway.sockets.send("prefill", Submit(request("r", 60, 5), Epoch(2)))
        await gateway.until(lambda: "r" in gateway.finished)


@pytest.mark.parametrize("topology", [SIMULATED], ids="-".join, indirect=True)
async def test_a_pause_of_its_own_does_not_make_an_engine_think_others_dead(
    topology: Topology, fresh: dict[str, subprocess.Popen[bytes]]
):
    async with EngineClient(topology).running() as gateway:
        await gateway.all_ready()
        gateway.sockets.send("decode", Submit(request("long", 30, 600), Epoch(1)))
        await gateway.until(lambda: "long" in gateway.streams)
        fresh["decode"].send_signal(signal.SIGSTOP)
        await asyncio.sleep(2 * topology.timing.lease_s)
        fresh["decode"].send_signal(signal.SIGCONT)
        await gateway.until(lambda: "long" in gateway.finished)
        assert len(gateway.streams["long"]) == 600


@pytest.mark.parametrize("topology", [SIMULATED], ids="-".join, indirect=True)
@pytest.mark.parametrize("why", ["a transfer", "a drain"])
async def test_an_engine_listens_to_another_when_it_has_to_do_with_it(topology: Topology, why: str):
    """Else each status would go to all engines, and as many as their square would be on their way."""
    me = Sender("decode", time.time_ns() // 1_000_000)
    decode: Sockets[EngineMessage] = Sockets(me, directory(topology), EngineMessage)
    decode.bind()
    subscribers, messages = decode.subscribers(), decode.messages()
    with engine_processes(replace(topology, engines=topology.engines[:1])):
        async with asyncio.timeout(DEADLINE_S), EngineClient(topology).running() as gateway:
            await anext(subscribers)  # the gateway
            await gateway.until(lambda: gateway.is_ready("prefill"))
            gateway.sockets.send("prefill", Submit(request("alone", 30, 4), Epoch(1)))
            await gateway.until(lambda: "alone" in gateway.finished)
            another = asyncio.ensure_future(anext(subscribers))
            await asyncio.sleep(2 * topology.timing.heartbeat_s)
            assert not another.done()
            handed_over = Submit(request("r", 30, 4), Epoch(1), "decode")
            gateway.sockets.send("prefill", handed_over if why == "a transfer" else Drain())
            if why == "a transfer":
                assert isinstance((await anext(messages)).message, Reserve)
            assert await another
    await decode.close()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('backend = "simulatd"', "engines.main.backend: no backend 'simulatd'; did you mean 'simulated'?"),
        ('backend = "simulated"', 'engines.main: backend = "simulated" needs a profile'),
        ('backend = "simulated"\nprofile = "h100-lama2-70b-tp4"', "did you mean 'h100-llama2-70b-tp4'?"),
        ('backend = "simulated"\nprofile = "none.toml"', "none.toml: No such file"),
    ],
)
def test_a_backend_that_cannot_be_is_one_line_and_no_restart(
    line: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    file = tmp_path / "topology.toml"
    file.write_text(f'[services.tiny]\nmodel = "{write_tiny_model(tmp_path / "model")}"\n[engines.main]\n{line}\n')
    command = [sys.executable, "-m", "engines", "--topology", str(file), "--id", "main"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert process.returncode == EXIT_CONFIGURATION
    assert fault in process.stderr.splitlines()[-1]
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("topology", [TORCH], ids="-".join, indirect=True)
async def test_an_engine_that_is_asked_to_stop_while_it_starts_does(topology: Topology):
    with engine_processes(replace(topology, engines=topology.engines[:1])) as processes:
        async with EngineClient(topology).running() as gateway:
            await gateway.until(lambda: set(gateway.statuses) == set(processes))
            processes["prefill"].send_signal(signal.SIGTERM)
            assert processes["prefill"].wait(DEADLINE_S) == 0


REPORT = """
import gc, sys
from engines import process
from mesh.process.process import run_process

async def report(self):
    young = [one for one in gc.get_objects() if type(one).__module__.startswith(("torch", "engines"))]
    print(gc.get_freeze_count() > 10_000, len(young), gc.get_threshold()[0])

process.EngineProcess.run = report
sys.exit(run_process("engines", lambda topology: [engine.id for engine in topology.engines], process.serve))
"""


@pytest.mark.parametrize("topology", [TORCH], ids="-".join, indirect=True)
def test_no_collection_looks_at_what_an_engine_has_loaded(topology: Topology):
    engine = topology.engines[0].id
    command = [sys.executable, "-c", REPORT, "--topology", str(topology.path), "--id", engine]
    process = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    is_frozen, num_young, collect_after = process.stdout.split()
    assert (is_frozen, int(collect_after)) == ("True", COLLECT_AFTER)
    assert int(num_young) < 100  # what runs with the loop
