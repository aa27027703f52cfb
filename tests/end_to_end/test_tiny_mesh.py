"""Real processes with a tiny random model: what must hold while processes die, clients leave and meshes stop."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, chunks_of, is_at_rest, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

FROZEN_S = 3.0  # three leases

TOPOLOGY = """
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[engines.prefill]
role = "prefill"
kv_memory = "4MiB"
[engines.decode]
count = 2
role = "multiplex"
kv_memory = "4MiB"
[gateways.gateway]
port = {port}
[transfer]
checksum = true
"""


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return start_mesh(TOPOLOGY.replace("{model}", str(model)))


def body(prompt: str, num_tokens: int, **more: object) -> dict[str, object]:
    return {"model": "tiny", "prompt": prompt, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True, **more}


def complete(mesh: Mesh, prompt: str, num_tokens: int) -> str:
    response = httpx.post(f"{mesh.url}/v1/completions", json=body(prompt, num_tokens), timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def stream(mesh: Mesh, prompt: str, num_tokens: int, on_first: Callable[[httpx.Response], None]) -> Iterator[str]:
    payload = body(prompt, num_tokens, stream=True)
    with httpx.stream("POST", f"{mesh.url}/v1/completions", json=payload, timeout=DEADLINE_S) as response:
        assert response.status_code == 200
        for index, chunk in enumerate(chunks_of(response)):
            if index == 0:
                on_first(response)
            assert "error" not in chunk, chunk
            yield from (choice["text"] for choice in chunk["choices"])  # type: ignore[attr-defined]


def pids(mesh: Mesh) -> dict[str, int]:
    """Ask again while a busy machine keeps one of them silent for a whole lease."""
    told: dict[str, object] = {}

    def are_told() -> bool:
        rows = mesh.status()
        told.update({str(row["id"]): row["pid"] for row in (*rows["engines"], *rows["gateways"])})
        return None not in told.values()

    until(are_told)
    return {name: int(str(pid)) for name, pid in told.items()}


@pytest.mark.parametrize("victim", ["decode", "prefill"])
def test_an_engine_killed_in_mid_stream_costs_no_token(mesh: Mesh, victim: str):
    until(lambda: is_at_rest(mesh))
    prompt, num_tokens = f"The engine that dies is {victim}. ", 300
    expected = complete(mesh, prompt, num_tokens)
    killed, victims = list[int](), pids(mesh)

    def kill(response: httpx.Response) -> None:
        pid = victims[response.headers[f"x-meshserve-{victim}"]]
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    assert "".join(stream(mesh, prompt, num_tokens, kill)) == expected
    until(lambda: is_at_rest(mesh))
    assert killed[0] not in pids(mesh).values()


NOTE = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^[a-z ]{150,160}$"}}}
NOTE_TOOL = {"name": "note", "parameters": {**NOTE, "required": ["text"], "additionalProperties": False}}


def call_of(mesh: Mesh, on_first: Callable[[httpx.Response], None]) -> str:
    """The arguments of the call that an answer must make, as they are streamed."""
    payload = body("", 400, stream=True, tool_choice="required", tools=[{"type": "function", "function": NOTE_TOOL}])
    payload = {**payload, "messages": [{"role": "user", "content": "Note it"}], "ignore_eos": False}
    arguments = ""
    with httpx.stream("POST", f"{mesh.url}/v1/chat/completions", json=payload, timeout=DEADLINE_S) as response:
        for chunk in chunks_of(response):
            [choice] = chunk["choices"]  # type: ignore[misc]
            for call in choice["delta"].get("tool_calls", ()):
                if not arguments and call["function"]["arguments"]:
                    on_first(response)
                arguments += call["function"]["arguments"]
            assert choice["finish_reason"] in (None, "tool_calls")
    return arguments


def test_an_engine_killed_in_the_middle_of_a_call_leaves_it_whole(mesh: Mesh):
    until(lambda: is_at_rest(mesh))
    expected = call_of(mesh, lambda _: None)
    assert len(json.loads(expected)["text"]) >= 150
    victims = pids(mesh)
    answer = call_of(mesh, lambda response: os.kill(victims[response.headers["x-meshserve-decode"]], signal.SIGKILL))
    assert answer == expected
    until(lambda: is_at_rest(mesh))


def test_what_engines_learnt_of_their_costs_is_shown_and_kept(mesh: Mesh):
    until(lambda: is_at_rest(mesh))
    result = mesh.run("profile", str(mesh.topology), "--live")
    assert result.returncode == 0, result.stderr
    for engine in ("prefill", "decode-0", "decode-1"):
        assert f"tiny on {engine}" in result.stdout
    assert result.stdout.count("saved ") == 3
    until(lambda: is_at_rest(mesh))


def test_a_client_that_goes_away_frees_its_blocks(mesh: Mesh):
    until(lambda: is_at_rest(mesh))
    payload = body("endless ", 1900, stream=True)
    with httpx.stream("POST", f"{mesh.url}/v1/completions", json=payload, timeout=DEADLINE_S) as response:
        next(response.iter_lines())
    until(lambda: is_at_rest(mesh))


def test_a_burst_is_answered_alike_whoever_computes_it(mesh: Mesh):
    prompts = [f"{'word ' * (index % 7 * 20)}question {index % 9}" for index in range(24)]
    with ThreadPoolExecutor(12) as threads:
        texts = list(threads.map(lambda prompt: complete(mesh, prompt, 20), prompts))
    with ThreadPoolExecutor(2) as threads:
        again = list(threads.map(lambda prompt: complete(mesh, prompt, 20), prompts))
    assert texts == again
    until(lambda: is_at_rest(mesh))


def test_a_gateway_that_is_frozen_for_longer_than_its_lease_loses_nothing(mesh: Mesh):
    """Its engines give its requests back; it goes on with them when it is there again."""
    prompt, num_tokens = "frozen", 250
    undisturbed = complete(mesh, prompt, num_tokens)

    def freeze(response: httpx.Response) -> None:
        gateway = pids(mesh)["gateway"]
        os.kill(gateway, signal.SIGSTOP)
        threading.Timer(FROZEN_S, os.kill, (gateway, signal.SIGCONT)).start()

    assert "".join(stream(mesh, prompt, num_tokens, freeze)) == undisturbed
    until(lambda: is_at_rest(mesh))


def test_a_gateway_that_dies_leaves_no_work_behind(mesh: Mesh):
    started = threading.Event()

    def consume() -> None:
        try:
            for _ in stream(mesh, "left alone ", 1900, lambda _: started.set()):
                pass
        except httpx.HTTPError:
            return

    client = threading.Thread(target=consume)
    client.start()
    assert started.wait(DEADLINE_S)
    os.kill(pids(mesh)["gateway"], signal.SIGKILL)
    client.join(DEADLINE_S)
    until(lambda: is_at_rest(mesh))
    until(lambda: complete_or_none(mesh) is not None)


def complete_or_none(mesh: Mesh) -> str | None:
    try:
        return complete(mesh, "back again ", 4)
    except (httpx.HTTPError, AssertionError):
        return None


def test_down_finishes_what_runs(mesh: Mesh):
    """The last one: nobody has the mesh after it."""
    prompt, num_tokens = "the last words ", 400
    expected = complete(mesh, prompt, num_tokens)
    stopping: list[threading.Thread] = []

    def stop(_: httpx.Response) -> None:
        thread = threading.Thread(target=mesh.run, args=("down", str(mesh.topology)))
        thread.start()
        stopping.append(thread)

    assert "".join(stream(mesh, prompt, num_tokens, stop)) == expected
    stopping[0].join(DEADLINE_S)
    status = mesh.run("status", str(mesh.topology))
    assert status.returncode == 1
    assert "Traceback" not in status.stderr
