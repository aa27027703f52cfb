"""A mesh of two real vLLM engines with a model that sees: images reach it, whatever becomes of a request."""

import json
import os
import signal
from base64 import b64encode
from collections.abc import Iterator

import httpx
import pytest

from tests.end_to_end.backends.test_vllm import TOPOLOGY, VLLM
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, engine, is_at_rest, until
from tests.engines.contract.conftest import vllm_python
from tests.engines.images.models import picture, write_seeing_model

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        vllm_python() is None, reason="no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON"
    ),
]

ONE, OTHER = picture(60, 44, seed=1), picture(60, 44, seed=2)
WORDS = "What do you see here? Please tell me all of it, from the left to the right, and in a few words. "
NUM_TOKENS = 250


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    folder = write_seeing_model(tmp_path_factory.mktemp("seeing"))
    vllm = VLLM.replace("{python}", str(vllm_python()))
    return start_mesh(TOPOLOGY.replace("{model}", str(folder)).replace("{vllm}", vllm))


def body(*images: bytes, num_tokens: int = 12, **more: object) -> dict[str, object]:
    urls = [f"data:image/png;base64,{b64encode(image).decode()}" for image in images]
    parts: list[dict[str, object]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = [*parts, {"type": "text", "text": WORDS}]
    wishes = {"temperature": 0, "ignore_eos": True, "max_tokens": num_tokens, "logprobs": True}
    return {"model": "tiny", "messages": [{"role": "user", "content": content}], **wishes, **more}


def ask(mesh: Mesh, payload: dict[str, object]) -> dict[str, object]:
    response = httpx.post(f"{mesh.url}/v1/chat/completions", json=payload, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    answer: dict[str, object] = response.json()
    return answer


def tokens(answer: dict[str, object]) -> list[str]:
    logprobs = (answer["choices"][0]["logprobs"] or {"content": []})["content"]  # type: ignore[index]
    return [f"{entry['token']} {entry['logprob']:.3f}" for entry in logprobs]


def num_cached(answer: dict[str, object]) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])  # type: ignore[index]


def test_answers_depend_on_images_and_prefixes_on_both(mesh: Mesh):
    listed = httpx.get(f"{mesh.url}/v1/models", timeout=DEADLINE_S).json()["data"]
    assert listed[0]["input_modalities"] == ["text", "image"]
    answers = [ask(mesh, body(image)) for image in (ONE, OTHER, ONE, OTHER)]
    first, second, third, fourth = map(tokens, answers)
    assert first == third != second == fourth
    assert [num_cached(answer) > 0 for answer in answers] == [False, False, True, True]
    assert tokens(ask(mesh, body())) not in (first, second)


def test_a_bad_image_harms_nobody(mesh: Mesh):
    expected = tokens(ask(mesh, body(ONE, OTHER)))
    refused = httpx.post(f"{mesh.url}/v1/chat/completions", json=body(ONE, ONE[:500]), timeout=DEADLINE_S)
    assert refused.status_code == 400
    assert "image 2 cannot be decoded" in refused.json()["error"]["message"]
    assert tokens(ask(mesh, body(ONE, OTHER))) == expected


def test_an_engine_killed_in_mid_answer_costs_no_token(mesh: Mesh):
    """Last of all: it takes its time to start again."""
    until(lambda: is_at_rest(mesh))
    payload = body(ONE, num_tokens=NUM_TOKENS)
    expected = tokens(ask(mesh, payload))
    assert len(expected) == NUM_TOKENS
    pid = int(str(engine(mesh, "decode")["pid"]))
    seen: list[str] = []
    for line in streamed(mesh, payload):
        if not seen:
            os.kill(pid, signal.SIGKILL)
        seen.append(line)
    assert seen == expected


def streamed(mesh: Mesh, payload: dict[str, object]) -> Iterator[str]:
    """Yield the tokens of a streamed answer as they come."""
    url = f"{mesh.url}/v1/chat/completions"
    with httpx.stream("POST", url, json={**payload, "stream": True}, timeout=DEADLINE_S) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                yield from tokens(json.loads(line.removeprefix("data: ")))
