"""One recorded stream of events gives the same effects in an engine's process and in the simulator, one by one.

Two engine processes serve for a moment: requests are handed over, migrated and cancelled, a role changes, an engine is
emptied and taken into service again, their gateway dies, and both are drained. Their nodes record all that happens and
what they wanted done. The stream is then fed to a node as the simulator makes it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from bench.transfer.engine_client import EngineClient
from engines import process as engine_process
from engines.core import EngineCore
from engines.costs.named_profiles import load_profile
from engines.costs.profiles import ProfileFile
from engines.effects import Compute, NodeEffect
from engines.loading import load as load_engine
from engines.node import EngineNode
from engines.process import EngineProcess
from engines.scheduling.service import Service
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import Send
from mesh.process.process import ProcessShell
from mesh.process.runtime_folder import make_runtime_dir
from mesh.sockets.sockets import Sockets
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.control import Drain, Migrate, Role, SetRole
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineMessage, SupervisorMessage
from mesh.wire.requests import Cancel, Epoch, RequestSpec, Sampling, Submit
from mesh.wire.status import ChildStatus, DecodeCost, EngineStatus, PrefillCost, SupervisorStatus
from mesh.wire.transfers import Reserve
from simulation.engines.physics import Physics
from simulation.factory import Factory
from simulation.kernel import Kernel
from simulation.network import Network
from tests.models.tiny_llama import write_tiny_model

TOPOLOGY = """
[mesh]
name = "parity"
[services.tiny]
model = "{model}"
[engines.prefill]
role = "prefill"
backend = "simulated"
profile = "{profile}"
chunk_tokens = 32
[engines.decode]
backend = "simulated"
profile = "{profile}"
chunk_tokens = 32
[gateways.gateway]
port = 18149
"""
PROFILE = ProfileFile(
    name="fast",
    source="nowhere",
    kv_bytes_per_token=1024,
    kv_memory_bytes=2**22,
    prefill=PrefillCost(1e-3, 2e-5),
    decode=DecodeCost(1e-3, 1e-4),
)
EVENTS = (
    "start",
    "welcome",
    "drain",
    "end_turn",
    "status",
    "receive",
    "hear",
    "finish_step",
    "exported",
    "imported",
    "expire",
)
Event = tuple[str, tuple[Any, ...]]


class Recording:
    """What happened to the node of one engine, and what it answered."""

    def __init__(self) -> None:
        self.events: Final[list[Event]] = []
        self.answers: Final[list[object]] = []

    def of(self, *nodes: EngineNode) -> None:
        """Record the events of a node from now on."""
        for node in nodes:
            for name in EVENTS:
                setattr(node, name, self._recorded(name, getattr(node, name)))

    def _recorded(self, name: str, event: Callable[..., object]) -> Callable[..., object]:
        def happen(*arguments: object) -> object:
            answer = event(*arguments)
            self.events.append((name, arguments))
            self.answers.append(comparable(answer))
            return answer

        return happen

    def replay(self, node: EngineNode) -> list[object]:
        """What another node answers to the same events."""
        return [comparable(getattr(node, name)(*arguments)) for name, arguments in self.events]


def comparable(answer: object) -> object:
    """Effects without what is a process's own: where its memory lies, its number and address, the bytes of KV."""
    if isinstance(answer, list):
        return [_comparable_effect(effect) for effect in answer]
    assert isinstance(answer, EngineStatus)
    return repr(msgspec.structs.replace(answer, pid=0, metrics_url=""))


def _comparable_effect(effect: NodeEffect) -> object:
    match effect:
        case Compute(step):
            return step.service.name, [(share.request.id, share.num_tokens) for share in step.shares]
        case Send(to, Reserve() as reserve):
            return to, repr(msgspec.structs.replace(reserve, memory=None))
        case Send(to, message):
            return to, repr(message)
    return repr(effect)


# --- the live run -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Topology:
    folder = tmp_path_factory.mktemp("parity")
    (folder / "fast.toml").write_text(PROFILE.text())
    file = folder / "topology.toml"
    file.write_text(TOPOLOGY.format(model=write_tiny_model(folder / "model"), profile=folder / "fast.toml"))
    return load(file)


@asynccontextmanager
async def serving(topology: Topology, name: str) -> AsyncIterator[ProcessShell]:
    """An engine process in this one; it is drained at the end."""
    engine, shell, peers = topology.engine(name), ProcessShell(topology, Sender(name, 1)), PeerMemories()
    sockets: Sockets[EngineMessage] = shell.sockets(EngineMessage)
    with ThreadPoolExecutor(1) as compute:
        process = EngineProcess(shell, engine, sockets, load_engine(topology, engine, peers), peers, compute)
        running = asyncio.create_task(process.run())
        try:
            yield shell
        finally:
            shell.drain.set()
            await running
            await sockets.close()


def request(name: str, num_prompt: int, max_tokens: int) -> RequestSpec:
    sampling = Sampling(max_tokens=max_tokens, seed=5, temperature=0.0, ignore_eos=True)
    prompt = [(7 * index + len(name)) % 250 for index in range(num_prompt)]
    return RequestSpec(name, "gateway", "tiny", prompt, sampling, 10.0, 1.0)


async def live(topology: Topology) -> None:
    """Some moments of two engines."""
    supervisor: Sockets[SupervisorMessage] = ProcessShell(topology, Sender("supervisor-local", 1)).sockets(
        SupervisorMessage
    )
    async with serving(topology, "prefill"), serving(topology, "decode"), EngineClient(topology).running() as gateway:
        await gateway.all_ready()
        for number in range(3):
            gateway.sockets.send("prefill", Submit(request(f"r{number}", 50 + 30 * number, 20), Epoch(1), "decode"))
        await gateway.until(lambda: len(gateway.finished) == 3)
        gateway.sockets.send("prefill", Submit(request("moves", 40, 400), Epoch(1)))
        await gateway.until(lambda: gateway.streams.get("moves"))
        gateway.sockets.send("prefill", Migrate("moves", "decode", "a test"))
        await gateway.until(lambda: gateway.owners["moves"] == "decode")
        gateway.sockets.send("prefill", SetRole(Role.MULTIPLEX, 0))
        gateway.sockets.send("decode", Drain())
        await gateway.until(lambda: gateway.owners["moves"] == "prefill")
        gateway.sockets.send("decode", Drain(undo=True))
        gateway.sockets.send("prefill", Cancel("moves", Epoch(1, 9)))
        gateway.sockets.send("decode", Submit(request("left", 30, 5000), Epoch(1)))
        await gateway.until(lambda: gateway.streams.get("left"))
        incarnation = gateway.sockets.me.incarnation
        dead = ChildStatus("gateway", "gateway", None, "restarting", 1, ended_incarnation=incarnation)
        supervisor.publish(SupervisorStatus(1, "local", 1, [dead]))
        await gateway.until(lambda: [refused for refused in gateway.refusals if refused.request == "left"])
    await supervisor.close()


@pytest.fixture(scope="module")
def recordings(topology: Topology, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    """Of both engines."""
    found: dict[str, Recording] = {}

    def recorded(core: EngineCore, topology: Topology, name: str, lease_s: float) -> EngineNode:
        node = EngineNode(core, topology, name, lease_s)
        found[name] = Recording()
        found[name].of(node)
        return node

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        patch.setattr(engine_process, "EngineNode", recorded)
        make_runtime_dir(topology)
        asyncio.run(live(topology))
    return found


# --- the simulator ----------------------------------------------------------------------------------------------------


def simulated(topology: Topology, name: str) -> EngineNode:
    """A node as the simulator makes it, for the model that the processes serve."""
    kernel = Kernel()
    profiles = {engine.id: load_profile(engine.profile or "") for engine in topology.engines}
    factory = Factory(
        topology,
        profiles,
        Physics(),
        Network(kernel, 0.0),
        kernel,
        coasts=False,
        observer=None,
        on_end=lambda record, spec: None,
    )
    engine = topology.engine(name)
    node = factory.engine(engine, Sender(name, 1), kernel, topology.timing.lease_s)._node
    for service, there in load_engine(topology, engine, PeerMemories()).services.items():
        _be_the_model_of(node.core._services[service], there)
    return node


def _be_the_model_of(service: Service, there: Service) -> None:
    """What a model fixes, and the simulator has no model for."""
    for name in ("shape", "eos_token_ids", "context_limit", "vocab_size", "identity", "ttft_s"):
        setattr(service, name, getattr(there, name))


@pytest.mark.parametrize("engine", ["prefill", "decode"])
def test_the_simulator_does_what_a_process_did(topology: Topology, recordings: dict[str, Recording], engine: str):
    recording = recordings[engine]
    answers = recording.replay(simulated(topology, engine))
    for event, live, replayed in zip(recording.events, recording.answers, answers, strict=True):
        assert replayed == live, event


def test_the_recorded_stream_has_all_that_matters(recordings: dict[str, Recording]):
    events = [event for recording in recordings.values() for event in recording.events]
    assert {name for name, _ in events} == set(EVENTS)
    said = {type(arguments[1]).__name__ for name, arguments in events if name in ("receive", "hear")}
    wanted = {"Submit", "Migrate", "SetRole", "Drain", "Cancel", "Reserve", "Blocks", "Commit", "SupervisorStatus"}
    assert wanted <= said
