import threading

import pytest

from mesh.wire.requests import FinishReason, TokenLogprobs
from router.api.openai.answers.logprobs import CompletionLogprobs


async def test_answers_in_openais_shape(gateway):
    gateway.says(" and more")
    body = (await gateway.complete()).json()
    assert body["id"].startswith("cmpl-")
    assert body["object"] == "text_completion"
    assert body["choices"] == [{"index": 0, "text": " and more", "logprobs": None, "finish_reason": "length"}]
    assert gateway.router.specs[0].sampling.max_tokens == 16


async def test_streams(gateway, events):
    gateway.says(" and more")
    chunks = events(await gateway.complete(stream=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == " and more"
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_token_ids(gateway):
    tokens = gateway.model.tokenizer.encode("Hello", add_special_tokens=False)
    await gateway.complete(prompt=tokens)
    assert gateway.router.specs[0].prompt == tokens


@pytest.mark.parametrize("as_tokens", [False, True])
async def test_several_prompts(gateway, as_tokens):
    prompts = ["Hello", "The quick brown fox"]
    tokens = [gateway.model.tokenizer.encode(prompt) for prompt in prompts]
    body = (await gateway.complete(prompt=tokens if as_tokens else prompts, n=2)).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert [spec.prompt for spec in gateway.router.specs] == [tokens[0], tokens[0], tokens[1], tokens[1]]
    assert body["usage"]["prompt_tokens"] == len(tokens[0]) + len(tokens[1])


@pytest.mark.parametrize("stream", [False, True])
async def test_echo(gateway, events, stream):
    gateway.says(" and more")
    response = await gateway.complete(echo=True, stream=stream)
    chunks = events(response) if stream else [response.json()]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Hello world and more"


async def test_echo_of_token_ids(gateway):
    gateway.says("!")
    tokens = gateway.model.tokenizer.encode("Hello world", add_special_tokens=False)
    body = (await gateway.complete(prompt=tokens, echo=True)).json()
    assert body["choices"][0]["text"] == "Hello world!"


def entries(tokens, logprob=-1.0):
    return [TokenLogprobs(token, logprob, [(token, logprob), (10, -2.0)]) for token in tokens]


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs(gateway, script, events, stream):
    tokens = gateway.model.tokenizer.encode("ab", add_special_tokens=False)
    gateway.router.script = lambda spec: [
        script.batch(tokens[0], logprobs=entries(tokens[:1])),
        script.batch(tokens[1], finish=FinishReason.LENGTH, logprobs=entries(tokens[1:])),
    ]
    response = await gateway.complete(logprobs=2, stream=stream)
    chunks = events(response) if stream else [response.json()]
    found = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [token for part in found for token in part["tokens"]] == ["a", "b"]
    assert [offset for part in found for offset in part["text_offset"]] == [0, 1]
    assert [logprob for part in found for logprob in part["token_logprobs"]] == [-1.0, -1.0]
    other = gateway.model.token_text(10)
    assert found[0]["top_logprobs"][0] == {"a": -1.0, other: -2.0}
    assert gateway.router.specs[0].sampling.logprobs == 2
    assert gateway.router.specs[0].sampling.prompt_logprobs is None


async def test_echo_with_logprobs(gateway, script):
    def play(spec):
        prompt = (None, *entries(spec.prompt[1:], -0.5))
        return [script.batch(20, finish=FinishReason.LENGTH, logprobs=entries([20]), prompt=prompt)]

    gateway.router.script = play
    body = (await gateway.complete(echo=True, logprobs=1, max_tokens=1)).json()
    spec = gateway.router.specs[0]
    assert spec.sampling.prompt_logprobs == 1
    logprobs = body["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == body["choices"][0]["text"]
    assert logprobs["token_logprobs"] == [None] + [-0.5] * (len(spec.prompt) - 1) + [-1.0]
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["text_offset"][-1] == len("Hello world")


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_of_a_prompt_are_written_out_beside_the_event_loop(
    gateway, script, stream, monkeypatch
):
    threads, add = {}, CompletionLogprobs.add

    def watched(self, prompt, prompt_entries, entries):
        threads[bool(prompt)] = threading.get_ident()
        return add(self, prompt, prompt_entries, entries)

    monkeypatch.setattr(CompletionLogprobs, "add", watched)
    gateway.router.script = lambda spec: [
        script.batch(20, logprobs=entries([20]), prompt=(None, *entries(spec.prompt[1:]))),
        script.batch(21, finish=FinishReason.LENGTH, logprobs=entries([21])),
    ]
    assert (await gateway.complete(echo=True, logprobs=1, stream=stream)).status_code == 200
    assert threads[False] == threading.get_ident()
    assert threads[True] != threads[False]


async def test_scores_a_prompt_without_an_answer(gateway, script):
    def play(spec):
        prompt = (None, *entries(spec.prompt[1:]))
        return [script.batch(20, finish=FinishReason.LENGTH, logprobs=entries([20]), prompt=prompt)]

    gateway.router.script = play
    body = (await gateway.complete(echo=True, logprobs=0, max_tokens=0)).json()
    choice = body["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("Hello world", "length")
    assert len(choice["logprobs"]["tokens"]) == len(gateway.router.specs[0].prompt)
    assert body["usage"]["completion_tokens"] == 0


async def test_all_sampling_parameters_arrive(gateway):
    await gateway.complete(
        max_tokens=9, temperature=0.3, top_p=0.8, top_k=-1, min_p=0.1, presence_penalty=0.5, frequency_penalty=-0.5,
        repetition_penalty=1.2, logit_bias={"5": -100}, seed=11, stop_token_ids=[7, 8], ignore_eos=True, min_tokens=2,
    )  # fmt: skip
    sampling = gateway.router.specs[0].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (9, 0.3, 0.8, 0)
    assert (sampling.min_p, sampling.presence_penalty, sampling.frequency_penalty) == (0.1, 0.5, -0.5)
    assert (sampling.repetition_penalty, sampling.logit_bias, sampling.seed) == (1.2, {5: -100.0}, 11)
    assert (sampling.stop_token_ids, sampling.ignore_eos, sampling.min_tokens) == ((7, 8), True, 2)


async def test_the_service_says_how_to_sample_when_the_request_does_not(gateway):
    await gateway.complete(max_tokens=1)
    sampling = gateway.router.specs[0].sampling
    assert (sampling.temperature, sampling.top_p) == (0.7, 0.95)


async def test_tokenize_and_detokenize(gateway):
    response = await gateway.client.post("/tokenize", json={"prompt": "Hello", "return_token_strs": True})
    body = response.json()
    assert body["tokens"] == gateway.model.tokenizer.encode("Hello")
    assert (body["count"], body["max_model_len"]) == (len(body["tokens"]), 256)
    assert "".join(body["token_strs"]) == "Hello"
    response = await gateway.client.post("/detokenize", json={"model": "tiny", "tokens": body["tokens"]})
    assert response.json() == {"prompt": "Hello"}


async def test_tokenize_messages(gateway):
    messages = [{"role": "user", "content": "Hi"}]
    response = await gateway.client.post("/tokenize", json={"messages": messages, "add_generation_prompt": False})
    text = await gateway.client.post("/detokenize", json={"tokens": response.json()["tokens"]})
    assert text.json()["prompt"] == "<|im_start|>user\nHi<|im_end|>\n"


async def test_models(gateway):
    body = (await gateway.client.get("/v1/models")).json()
    assert [model["id"] for model in body["data"]] == ["tiny", "tiny-alias"]
    assert body["data"][0]["max_model_len"] == 256
    one = (await gateway.client.get("/v1/models/tiny-alias")).json()
    assert (one["id"], one["root"]) == ("tiny-alias", "tiny")
