"""A mesh of two real vLLM engines: whatever becomes of a request, its tokens are those that it would have had."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, Client, engine, is_at_rest, until
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
[services.tiny]
model = "{model}"
ttft_ms = 60000
tpot_ms = 5000
max_priority = 100
[services.half]
model = "{model}"
dtype = "bfloat16"
ttft_ms = 60000
tpot_ms = 5000
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
"""
VLLM = """backend = "vllm"
python = "{python}"
block_size = 32
kv_memory = "16MiB"
options = { enforce_eager = true }"""


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh) -> Mesh:
    vllm = VLLM.replace("{python}", str(vllm_python()))
    return start_mesh(TOPOLOGY.replace("{model}", str(FOLDER)).replace("{vllm}", vllm))


def body(prompt: str, num_tokens: int, **more: object) -> dict[str, object]:
    wishes = {"temperature": 0.9, "seed": 5, "ignore_eos": True}
    return {"model": "tiny", "prompt": prompt, "max_tokens": num_tokens, **wishes, **more}


def complete(mesh: Mesh, prompt: str, num_tokens: int, urgency: int = 0, **more: object) -> dict[str, object]:
    payload, headers = body(prompt, num_tokens, **more), {"x-priority": str(urgency)}
    response = httpx.post(f"{mesh.url}/v1/completions", json=payload, headers=headers, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    answer: dict[str, object] = response.json()
    return answer


def text(answer: dict[str, object]) -> str:
    return str(answer["choices"][0]["text"])  # type: ignore[index]


def start(mesh: Mesh, payload: dict[str, object]) -> Client:
    return Client(mesh.url, payload).begin()


def test_one_engine_prefills_and_another_decodes(mesh: Mesh):
    client = start(mesh, body("def open(", 40))
    client.end()
    assert (client.headers["x-meshserve-prefill"], client.headers["x-meshserve-decode"]) == ("prefill", "decode")
    assert client.text == text(complete(mesh, "def open(", 40))
    assert client.text != text(complete(mesh, "def open(", 40, seed=6))


def test_prompts_that_begin_alike_are_computed_once(mesh: Mesh):
    shared = "The same words again and again, so that blocks are full of them. " * 3
    answers = [complete(mesh, shared + end, 30, temperature=0) for end in ("One", "Two", "Three", "One")]
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]  # type: ignore[index]
    assert cached[0] == 0
    assert max(cached) >= 160
    assert text(answers[3]) == text(answers[0])


def test_logprobs_of_prompt_and_answer(mesh: Mesh):
    answer = complete(mesh, "Return the name", 4, temperature=0, logprobs=2, echo=True)
    logprobs = answer["choices"][0]["logprobs"]  # type: ignore[index]
    assert "".join(logprobs["tokens"]).endswith(text(answer))  # a token that begins prompts is not in texts
    assert logprobs["token_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert all(len(top) >= 2 for top in logprobs["top_logprobs"][1:])


def test_a_request_that_moves_while_it_runs_has_the_tokens_of_one_that_stays(mesh: Mesh):
    until(lambda: is_at_rest(mesh))
    payload = body("Move me. ", NUM_TOKENS)
    expected = text(complete(mesh, "Move me. ", NUM_TOKENS))
    for _ in range(ATTEMPTS):
        client = start(mesh, payload)
        moved = mesh.run("migrate", str(mesh.topology), client.id, "prefill")
        assert client.end() == expected
        if moved.returncode == 0:
            break
        assert "has ended (length)" in moved.stderr or "waits at its gateway" in moved.stderr
    assert moved.returncode == 0
    assert engine(mesh, "decode")["migrations"] == 1


def test_a_drained_engine_gives_its_requests_away(mesh: Mesh):
    until(lambda: is_at_rest(mesh))
    prompts = [f"Drain number {number}. " for number in range(3)]
    expected = [text(complete(mesh, prompt, NUM_TOKENS)) for prompt in prompts]
    num_before, num_moved = int(str(engine(mesh, "decode")["migrations"])), 0
    for _ in range(ATTEMPTS):
        clients = [start(mesh, body(prompt, NUM_TOKENS)) for prompt in prompts]
        drained = mesh.run("drain", str(mesh.topology), "decode")
        num_moved = int(str(engine(mesh, "decode")["migrations"])) - num_before
        undone = mesh.run("drain", str(mesh.topology), "decode", "--undo")
        assert (drained.returncode, drained.stderr, undone.returncode) == (0, "", 0)
        assert [client.end() for client in clients] == expected
        if num_moved:
            break
    assert num_moved > 0
    until(lambda: engine(mesh, "decode")["state"] == "ready")


def test_what_is_more_urgent_is_answered_first(mesh: Mesh):
    """More requests than the memory holds: the urgent one passes those that wait, and preempts."""
    until(lambda: is_at_rest(mesh))
    prompt = "Some words that fill blocks. " * 10
    expected = text(complete(mesh, "Urgent. " + prompt, 300))
    ended: list[str] = []

    def ask(name: str, urgency: int) -> str:
        answer = text(complete(mesh, f"{name}. {prompt}", 300, urgency))
        ended.append(name)
        return answer

    with ThreadPoolExecutor(40) as threads:
        others = [threads.submit(ask, f"Patient {number}", 0) for number in range(38)]
        time.sleep(0.5)
        urgent = threads.submit(ask, "Urgent", 100)
        assert urgent.result() == expected
        assert all(other.result() for other in others)
    assert ended.index("Urgent") < 30


def test_an_engine_killed_in_mid_answer_costs_no_token(mesh: Mesh):
    """Last of all: it takes its time to start again."""
    until(lambda: is_at_rest(mesh))
    wishes = {"greedy": {"temperature": 0}, "seeded": {}, "penalised": {"frequency_penalty": 0.5, "logprobs": 1}}
    expected = {name: text(complete(mesh, name, NUM_TOKENS, **wish)) for name, wish in wishes.items()}
    pid = int(str(engine(mesh, "decode")["pid"]))
    clients = {name: start(mesh, body(name, NUM_TOKENS, **wish)) for name, wish in wishes.items()}
    assert all(client.is_alive() for client in clients.values())
    os.kill(pid, signal.SIGKILL)
    assert {name: client.end() for name, client in clients.items()} == expected


def test_services_share_an_engine_and_what_is_handed_over_stays_theirs(mesh: Mesh):
    """Blocks of one are half as large as the other's, so two of them lie in a page."""
    payloads = [body(f"{word} " * 30, 60, model=model) for word in ("red", "green") for model in ("tiny", "half")]

    def ask(payload: dict[str, object]) -> str:
        return str(
            httpx.post(f"{mesh.url}/v1/completions", json=payload, timeout=DEADLINE_S).json()["choices"][0]["text"]
        )

    alone = [ask(payload) for payload in payloads]
    with ThreadPoolExecutor(2 * len(payloads)) as pool:
        together = list(pool.map(ask, [*payloads, *payloads]))
    assert together == [*alone, *alone]
    assert {service["name"] for service in engine(mesh, "decode")["services"]} == {"tiny", "half"}
