"""The default topology with the default model, as a user has it after `make up`, held against transformers."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

from engines.models.store import prepared_dir
from mesh.topology.parse import load
from tests.end_to_end.conftest import DEFAULT_TOPOLOGY, Mesh, StartMesh

if TYPE_CHECKING:
    import openai

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

MODEL = "smollm2"
QUESTIONS = ["What is the capital of France?"]
LONG = "Summarise this. " + " ".join(f"Item {index} is worth {index * 3} coins." for index in range(28))
NUM_TOKENS = 16


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh) -> Mesh:
    """The default file, but for the port, promises that a busy machine keeps, and a policy that hands requests over."""
    text = DEFAULT_TOPOLOGY.read_text().replace('name = "foresight"', 'name = "tropical"')
    assert "port = 8000" in text
    return start_mesh(text.replace("port = 8000", "port = {port}").replace("ttft_ms = 5000", "ttft_ms = 60000"))


@pytest.fixture(scope="module")
def client(mesh: Mesh) -> "Iterator[openai.OpenAI]":
    import openai

    with openai.OpenAI(base_url=f"{mesh.url}/v1", api_key="unused", timeout=120.0, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def expected(mesh: Mesh) -> dict[str, str]:
    """What transformers' own generate answers."""
    import torch
    import transformers

    torch.set_num_threads(1)
    folder = prepared_dir(load(mesh.topology).services[0].model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def answer(question: str) -> str:
        chat = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        tokens = model.generate(**prompt, max_new_tokens=NUM_TOKENS, do_sample=False)
        return str(tokenizer.decode(tokens[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True))

    return {question: answer(question) for question in (*QUESTIONS, LONG)}


def ask(client: "openai.OpenAI", question: str) -> tuple[str, dict[str, str]]:
    """The streamed answer and the headers that came with it."""
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=[{"role": "user", "content": question}],
        temperature=0,
        max_tokens=NUM_TOKENS,
        stream=True,
    )
    parts = [chunk.choices[0].delta.content or "" for chunk in raw.parse() if chunk.choices]
    return "".join(parts), dict(raw.headers)


@pytest.mark.parametrize("question", [*QUESTIONS, LONG])
def test_a_chat_through_two_processes_equals_transformers(
    client: "openai.OpenAI", expected: dict[str, str], question: str
):
    answer, headers = ask(client, question)
    assert answer == expected[question]
    assert (headers["x-meshserve-prefill"], headers["x-meshserve-decode"]) == ("prefill", "decode")


def test_asked_again_the_prompt_is_not_computed_again(client: "openai.OpenAI", expected: dict[str, str]):
    completion = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": LONG}], temperature=0, max_tokens=NUM_TOKENS
    )
    assert completion.choices[0].message.content == expected[LONG]
    assert completion.usage is not None
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens > 0


def test_one_seed_gives_one_answer(client: "openai.OpenAI"):
    texts = [
        client.completions.create(
            model=MODEL, prompt="Once upon a time", max_tokens=16, temperature=1.0, top_p=0.95, seed=seed
        )
        .choices[0]
        .text
        for seed in (7, 7, 8)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_an_answer_keeps_to_its_schema(client: "openai.OpenAI"):
    """Sampled by a prefill engine first, then by another; so hot that this model would rarely write JSON by itself."""
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "size": {"enum": ["small", "large"]}},
        "required": ["city", "size"],
        "additionalProperties": False,
    }
    for seed in range(3):
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Name a city."}],
            response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema}},
            temperature=1.5,
            seed=seed,
            max_tokens=200,
        )
        assert answer.choices[0].finish_reason == "stop"
        told = json.loads(answer.choices[0].message.content or "")
        assert told.keys() == {"city", "size"}
        assert told["size"] in schema["properties"]["size"]["enum"]  # type: ignore[index]


def test_status_names_every_process(mesh: Mesh):
    status = mesh.status()
    assert [gateway["id"] for gateway in status["gateways"]] == ["gateway"]
    assert {(engine["id"], engine["role"], engine["state"]) for engine in status["engines"]} == {
        ("prefill", "prefill", "ready"),
        ("decode", "multiplex", "ready"),
    }
    assert all(engine["services"] for engine in status["engines"])


def test_health_models_and_metrics(mesh: Mesh):
    assert httpx.get(f"{mesh.url}/health").status_code == 200
    assert [model["id"] for model in httpx.get(f"{mesh.url}/v1/models").json()["data"]] == [MODEL]
    assert "vllm:time_to_first_token_seconds" in httpx.get(f"{mesh.admin_url}/metrics").text


def test_an_unknown_model_is_one_clear_error(client: "openai.OpenAI"):
    import openai

    with pytest.raises(openai.NotFoundError, match="smollm2"):
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "hi"}])


def test_the_mesh_chat_command_answers(mesh: Mesh):
    chat = mesh.run("chat", "--url", mesh.url, "--max-tokens", "8", "What is two plus two?")
    assert chat.returncode == 0, chat.stderr
    assert chat.stdout.strip()
