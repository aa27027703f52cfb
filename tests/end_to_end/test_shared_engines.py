"""Three services on two engines: the tokens of each are those it has alone, whoever dies."""

import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import httpx
import pytest

from bench.engine.under_test import BLOCK_SIZE
from engines.models.files.model_config import ModelConfig
from engines.models.text.tokenizer import Tokenizer
from engines.scheduling.batch import Batch, Chunk, Draw
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.shape import kv_shape
from kvtransfer.layout import block_bytes
from mesh.wire.requests import Sampling
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, chunks_of, is_at_rest, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

BYTE_LLAMA = Path(__file__).parents[2] / "deploy/models/byte-llama"
SERVICES = ("tiny", "other-tiny", "byte-llama")
DECODES = ("decode-0", "decode-1")  # fewer than services, so one of them decodes for two
MOST = 4  # answers at a time
TOPOLOGY = """
[services.tiny]
model = "{tiny}"
ttft_ms = 30000
tpot_ms = 1000
[services.other-tiny]
model = "{other-tiny}"
ttft_ms = 30000
tpot_ms = 1000
[services.byte-llama]
model = "{byte-llama}"
ttft_ms = 30000
tpot_ms = 1000
[engines.prefill]
role = "prefill"
kv_memory = "16MiB"
[engines.decode]
count = 2
role = "multiplex"
kv_memory = "16MiB"
[gateways.gateway]
port = {port}
[transfer]
checksum = true
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    tiny = {
        name: write_tiny_model(tmp_path_factory.mktemp("model"), seed)
        for seed, name in enumerate(("tiny", "other-tiny"))
    }
    return {**tiny, "byte-llama": BYTE_LLAMA}


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, folders: Mapping[str, Path]) -> Mesh:
    text = TOPOLOGY
    for name, folder in folders.items():
        text = text.replace(f"{{{name}}}", str(folder))
    return start_mesh(text)


class Alone:
    """One model by itself in this process."""

    def __init__(self, folder: Path) -> None:
        config = ModelConfig.load(folder)
        self._num_blocks = -(-config.max_context // BLOCK_SIZE)  # of each answer
        size = block_bytes(kv_shape(config, "float32", BLOCK_SIZE))
        memory = bytearray(MOST * self._num_blocks * size)
        self._executor = TorchExecutor([TorchService("alone", folder, config, "float32", BLOCK_SIZE, memory, size)])
        self._tokenizer = Tokenizer.load(folder)

    def complete(self, prompts: Sequence[str], num_tokens: int) -> list[str]:
        """Greedy, past any end token, one step of all answers after the other."""
        texts = [self._tokenizer.encode(prompt) for prompt in prompts]
        num_prompts, num_computed = [len(tokens) for tokens in texts], [0] * len(prompts)
        sampling = Sampling(max_tokens=num_tokens, seed=0, temperature=0.0, ignore_eos=True)
        for _ in range(num_tokens):
            chunks = []
            for number, tokens in enumerate(texts):
                draw = Draw(sampling, tokens, num_prompts[number], len(tokens))
                blocks = list(range(number * self._num_blocks, (number + 1) * self._num_blocks))
                chunks.append(Chunk("alone", tokens[num_computed[number] :], num_computed[number], blocks, draw))
                num_computed[number] = len(tokens)
            for tokens, result in zip(texts, self._executor.execute(Batch("alone", chunks)).chunks, strict=True):
                assert result.token is not None
                tokens.append(result.token)
        return [self._tokenizer.decode(tokens[count:]) for tokens, count in zip(texts, num_prompts, strict=True)]


@pytest.fixture(scope="module")
def alone(folders: Mapping[str, Path]) -> dict[str, Alone]:
    return {name: Alone(folder) for name, folder in folders.items()}


@dataclass(frozen=True)
class Answer:
    service: str
    text: str
    headers: Mapping[str, str]


def body(service: str, prompt: str, num_tokens: int, **more: object) -> dict[str, object]:
    wishes = {"max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    return {"model": service, "prompt": prompt, **wishes, **more}


def complete(mesh: Mesh, service: str, prompt: str, num_tokens: int) -> Answer:
    response = httpx.post(f"{mesh.url}/v1/completions", json=body(service, prompt, num_tokens), timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    assert response.json()["model"] == service
    return Answer(service, response.json()["choices"][0]["text"], response.headers)


def stream(mesh: Mesh, service: str, prompt: str, num_tokens: int, begun: "Queue[Answer]") -> Answer:
    payload, text = body(service, prompt, num_tokens, stream=True), ""
    with httpx.stream("POST", f"{mesh.url}/v1/completions", json=payload, timeout=DEADLINE_S) as response:
        assert response.status_code == 200
        for chunk in chunks_of(response):
            assert "error" not in chunk, chunk
            if not text:
                begun.put(Answer(service, "", response.headers))
            text += "".join(choice["text"] for choice in chunk["choices"])  # type: ignore[attr-defined]
        return Answer(service, text, response.headers)


def test_every_engine_holds_every_model(mesh: Mesh):
    listed = httpx.get(f"{mesh.url}/v1/models", timeout=DEADLINE_S).json()["data"]
    assert [model["id"] for model in listed] == list(SERVICES)
    for engine in mesh.status()["engines"]:
        services = {str(service["name"]): service for service in engine["services"]}  # type: ignore[attr-defined]
        assert set(services) == set(SERVICES)
        assert all(service["free_blocks"] > 0 for service in services.values())


def test_each_service_answers_as_it_does_alone(mesh: Mesh, alone: Mapping[str, Alone]):
    asked = [
        (service, f"Return {'the sum of ' * (number * 5)}all items", 24 + 8 * number)
        for number in range(6)
        for service in alone
    ]
    with ThreadPoolExecutor(len(asked)) as clients:
        answers = list(clients.map(lambda one: complete(mesh, *one), asked))
    assert [answer.text for answer in answers] == [
        alone[service].complete([prompt], num_tokens)[0] for service, prompt, num_tokens in asked
    ]
    assert shared(answers)


def test_a_killed_shared_engine_costs_no_service_a_token(mesh: Mesh, alone: Mapping[str, Alone]):
    until(lambda: is_at_rest(mesh))
    begun: Queue[Answer] = Queue()
    num_tokens = 250
    pids = {str(row["id"]): int(str(row["pid"])) for row in mesh.status()["engines"]}
    prompts = [(service, f"Number {number} is") for service in SERVICES for number in range(MOST)]
    with ThreadPoolExecutor(len(prompts)) as clients:
        streams = [clients.submit(stream, mesh, *one, num_tokens, begun) for one in prompts]
        places = [begun.get(timeout=DEADLINE_S) for _ in prompts]
        os.kill(pids[shared(places)], signal.SIGKILL)
        assert not all(map(Future.done, streams)), "the answers ended before the engine did"
        answers = [one.result() for one in streams]
    for service, model in alone.items():
        expected = model.complete([prompt for name, prompt in prompts if name == service], num_tokens)
        assert [answer.text for answer in answers if answer.service == service] == expected
    until(lambda: is_at_rest(mesh))


def shared(answers: list[Answer]) -> str:
    """The decode engine whose answers are of most services, two at least."""
    held = {
        engine: {one.service for one in answers if one.headers["x-meshserve-decode"] == engine} for engine in DECODES
    }
    engine = max(DECODES, key=lambda one: len(held[one]))
    assert len(held[engine]) >= 2, held
    return engine
