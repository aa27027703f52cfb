"""Whatever a request asks for, its answer after the death of its engine is the one that it would have had.

Engines are modelled ones, whose tokens depend on the whole context, the seed and the KV blocks, and on nothing else: a
real model rounds differently in other batches. What samplers make of a continuation is tested with the torch engine
(tests/engines/contract).
"""

import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, simulated_mesh, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

NUM_TOKENS = 240
WISHES: dict[str, dict[str, object]] = {
    "seeded": {"seed": 5},
    "penalised": {"seed": 6, "presence_penalty": 1.0, "frequency_penalty": 0.5},
    "logprobs": {"seed": 7, "logprobs": 2},
    "three choices": {"seed": 8, "n": 3},
    "min_tokens": {"seed": 9, "min_tokens": 200, "stop_token_ids": list(range(20, 90))},
}


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    topology = simulated_mesh() + '[policy]\nname = "least_loaded"\n'
    return start_mesh(topology.replace("{model}", str(write_tiny_model(tmp_path_factory.mktemp("model")))))


def complete(mesh: Mesh, wishes: dict[str, object]) -> list[dict[str, object]]:
    body = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": NUM_TOKENS, "ignore_eos": True, **wishes}
    response = httpx.post(f"{mesh.url}/v1/completions", json=body, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    choices: list[dict[str, object]] = response.json()["choices"]
    return sorted(choices, key=lambda choice: int(str(choice["index"])))


def stories(mesh: Mesh) -> list[dict[str, object]]:
    answer = httpx.get(f"{mesh.admin_url}/mesh/requests", params={"limit": 50}, timeout=DEADLINE_S).json()
    found: list[dict[str, object]] = answer["requests"]
    return found


def kinds(story: dict[str, object]) -> list[str]:
    return [event["type"] for event in story["events"]]  # type: ignore[attr-defined]


def is_running(story: dict[str, object]) -> bool:
    return "first_token" in kinds(story) and "ended" not in kinds(story)


def complete_all(mesh: Mesh, wishes: dict[str, dict[str, object]]) -> dict[str, "Future[list[dict[str, object]]]"]:
    clients = ThreadPoolExecutor(len(wishes))
    try:
        return {name: clients.submit(complete, mesh, one) for name, one in wishes.items()}
    finally:
        clients.shutdown(wait=False)


def test_answers_are_exact_after_the_death_of_an_engine(mesh: Mesh):
    expected = {name: answer.result() for name, answer in complete_all(mesh, WISHES).items()}
    text = str(expected["seeded"][0]["text"])
    stop = text[-24:-16]
    wishes = {**WISHES, "stop string": {**WISHES["seeded"], "stop": stop}}
    expected["stop string"] = [{**expected["seeded"][0], "text": text[: text.index(stop)], "finish_reason": "stop"}]
    assert expected["min_tokens"][0]["finish_reason"] == "stop"
    pid = next(int(str(row["pid"])) for row in mesh.status()["engines"] if row["id"] == "decode-0")
    answers = complete_all(mesh, wishes)
    until(lambda: sum(is_running(story) for story in stories(mesh)) == 8)
    time.sleep(1.0)  # some 60 tokens
    os.kill(pid, signal.SIGKILL)
    for name, answer in answers.items():
        assert [without_stop(one) for one in answer.result()] == [without_stop(one) for one in expected[name]], name
    interrupted = [story for story in stories(mesh) if "interrupted" in kinds(story)]
    assert len(interrupted) > 2, "the engine that died held some of them"


def without_stop(choice: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in choice.items() if key != "stop_reason"}
