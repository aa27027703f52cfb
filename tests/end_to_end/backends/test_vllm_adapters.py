"""LoRA adapters on a mesh of two real vLLM engines: whatever becomes of a request, it keeps its adapter."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from engines.models.files.model_config import ModelConfig
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, Client, engine, is_at_rest, until
from tests.engines.adapters.writing import write_adapter
from tests.engines.contract.computers import FOLDER
from tests.engines.contract.conftest import vllm_python

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        vllm_python() is None, reason="no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON"
    ),
]
NUM_TOKENS = 900
ATTEMPTS = 8  # a command may come when the answer has ended
TOPOLOGY = """
[mesh]
start_s = 400
[services.chat]
model = "{model}"
ttft_ms = 60000
tpot_ms = 5000
[services.sql]
base = "chat"
adapter = "{folder}/sql"
[engines.prefill]
role = "prefill"
{vllm}
[engines.decode]
role = "multiplex"
{vllm}
[gateways.gateway]
port = {port}
[transfer]
checksum = true
[adapters]
folder = "{folder}"
"""
VLLM = """backend = "vllm"
python = "{python}"
block_size = 32
kv_memory = "16MiB"
adapter_memory = "4MiB"
options = { enforce_eager = true }"""


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    folder, config = tmp_path_factory.mktemp("adapters"), ModelConfig.load(FOLDER)
    for seed, name in enumerate(("sql", "law", "code", "poems")):
        write_adapter(folder / name, config, 16, 16, seed=seed, scale=0.2)
    write_adapter(folder / "large", config, 17)
    write_adapter(folder / "foreign", config, layers=[config.num_layers])
    vllm = VLLM.replace("{python}", str(vllm_python()))
    text = TOPOLOGY.replace("{model}", str(FOLDER)).replace("{vllm}", vllm)
    return start_mesh(text.replace("{folder}", str(folder)))


def body(model: str, num_tokens: int = NUM_TOKENS) -> dict[str, object]:
    prompt = "The same words for all of them, so that a block is full. "
    return {"model": model, "prompt": prompt, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}


def ask(mesh: Mesh, model: str, num_tokens: int = NUM_TOKENS) -> str:
    response = httpx.post(f"{mesh.url}/v1/completions", json=body(model, num_tokens), timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def order(mesh: Mesh, what: str, **wanted: object) -> httpx.Response:
    return httpx.post(f"{mesh.admin_url}/v1/{what}_lora_adapter", json=wanted, timeout=DEADLINE_S)


def test_adapters_are_added_used_together_and_removed_while_they_run(mesh: Mesh):
    for name in ("law", "code", "poems"):
        assert order(mesh, "load", lora_name=name, lora_path=name).status_code == 200
    names = ["chat", "sql", "law", "code", "poems"]
    alone = {name: ask(mesh, name, 40) for name in names}
    assert len(set(alone.values())) == 5
    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(lambda i: ask(mesh, names[i % 5], 40), range(10))) == [
            alone[names[i % 5]] for i in range(10)
        ]
    expected, client = ask(mesh, "law"), Client(mesh.url, body("law")).begin()
    assert order(mesh, "unload", lora_name="law").status_code == 200
    refused = httpx.post(f"{mesh.url}/v1/completions", json=body("law", 1), timeout=DEADLINE_S)
    assert (refused.status_code, client.end()) == (404, expected)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("large", "has rank 17, and engines.prefill takes up to 16; give it options = { max_lora_rank = 32 }"),
        ("foreign", "has a layer 4, and chat has 4 layers"),
    ],
)
def test_one_that_has_no_place_is_refused(mesh: Mesh, name: str, words: str):
    answer = order(mesh, "load", lora_name=name, lora_path=name)
    assert (answer.status_code, words in answer.json()["error"]["message"]) == (400, True), answer.text


def test_a_request_that_moves_keeps_its_adapter(mesh: Mesh):
    until(lambda: is_at_rest(mesh))
    expected = ask(mesh, "sql")
    for _ in range(ATTEMPTS):
        client = Client(mesh.url, body("sql")).begin()
        moved = mesh.run("migrate", str(mesh.topology), client.id, "prefill")
        assert client.end() == expected
        if moved.returncode == 0:
            break
        assert "has ended (length)" in moved.stderr or "is not here" in moved.stderr
    assert moved.returncode == 0
    assert engine(mesh, "decode")["migrations"] == 1


def test_an_engine_killed_in_mid_answer_costs_no_token(mesh: Mesh):
    """Last of all: it takes its time to start again."""
    until(lambda: is_at_rest(mesh))
    names = ["sql", "code", "chat"]
    expected = [ask(mesh, name) for name in names]
    clients = [Client(mesh.url, body(name)).begin() for name in names]
    os.kill(int(str(engine(mesh, "decode")["pid"])), signal.SIGKILL)
    assert [client.end() for client in clients] == expected
