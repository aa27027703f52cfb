"""Whatever a request asks for, its answer after the death of its engine is the one that it would have had."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from bench.tiny_model import write_tiny_model
from tests.end_to_end.conftest import Mesh, StartMesh

pytestmark = pytest.mark.timeout(300)

DEADLINE_S = 60.0
NUM_TOKENS = 1000
TOPOLOGY = """
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[engines.prefill]
role = "prefill"
kv_memory = "8MiB"
[engines.decode]
count = 2
role = "multiplex"
kv_memory = "8MiB"
[gateways.gateway]
port = {port}
[policy]
name = "least_loaded"
"""
WISHES: dict[str, dict[str, object]] = {
    "greedy": {"temperature": 0},
    "seeded": {"seed": 5, "temperature": 0.9},
    "penalised": {"seed": 6, "temperature": 0.8, "presence_penalty": 1.0, "frequency_penalty": 0.5},
    "logprobs": {"seed": 7, "temperature": 0.8, "logprobs": 2},
    "three choices": {"seed": 8, "temperature": 1.0, "n": 3},
    "min_tokens": {"seed": 9, "temperature": 1.0, "min_tokens": 980, "ignore_eos": False},
}


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    return start_mesh(TOPOLOGY.replace("{model}", str(write_tiny_model(tmp_path_factory.mktemp("model")))))


def complete(mesh: Mesh, wishes: dict[str, object]) -> list[dict[str, object]]:
    body = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": NUM_TOKENS, "ignore_eos": True, **wishes}
    response = httpx.post(f"{mesh.url}/v1/completions", json=body, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    choices: list[dict[str, object]] = response.json()["choices"]
    return sorted(choices, key=lambda choice: int(str(choice["index"])))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


def stories(mesh: Mesh) -> list[dict[str, object]]:
    answer = httpx.get(f"{mesh.url}/mesh/requests", params={"limit": 50}, timeout=DEADLINE_S).json()
    found: list[dict[str, object]] = answer["requests"]
    return found


def kinds(story: dict[str, object]) -> list[str]:
    return [event["type"] for event in story["events"]]  # type: ignore[attr-defined]


def is_running(story: dict[str, object]) -> bool:
    return "first_token" in kinds(story) and "ended" not in kinds(story)


def split(choice: dict[str, object]) -> tuple[dict[str, object], list[float]]:
    """What has to be the same, and log-probabilities: a continuation computes its KV in other batches."""
    logprobs = choice["logprobs"]
    if logprobs is None:
        return choice, []
    tops = [list(top) for top in logprobs["top_logprobs"]]  # type: ignore[index]
    return {**choice, "logprobs": (logprobs["tokens"], tops)}, logprobs["token_logprobs"]  # type: ignore[index]


def test_answers_are_exact_after_the_death_of_an_engine(mesh: Mesh) -> None:
    expected = {name: complete(mesh, wishes) for name, wishes in WISHES.items()}
    text = str(expected["seeded"][0]["text"])
    stop = text[-60:-50]
    wishes = {**WISHES, "stop string": {**WISHES["seeded"], "stop": stop}}
    expected["stop string"] = complete(mesh, wishes["stop string"])
    assert str(expected["stop string"][0]["text"]) == text[: text.index(stop)]
    pid = next(int(str(row["pid"])) for row in mesh.status()["engines"] if row["id"] == "decode-0")
    with ThreadPoolExecutor(len(wishes)) as clients:
        answers = {name: clients.submit(complete, mesh, one) for name, one in wishes.items()}
        until(lambda: sum(is_running(story) for story in stories(mesh)) >= 8)
        os.kill(pid, signal.SIGKILL)
        for name, answer in answers.items():
            for one, other in zip(answer.result(), expected[name], strict=True):
                same, values = split(one)
                wanted, wanted_values = split(other)
                assert same == wanted, name
                assert values == pytest.approx(wanted_values, abs=1e-3), name
    interrupted = [story for story in stories(mesh) if "interrupted" in kinds(story)]
    assert len(interrupted) > 2, "the engine that died held some of them"
