import json

import pytest
from llguidance import LLMatcher, LLTokenizer

from mesh.rules import Lateness
from mesh.wire.requests import FinishReason, TokenLogprobs
from router.generation import Fault, RequestFailed


async def test_answers_in_openais_shape(gateway):
    tokens = gateway.says("Hello there", FinishReason.LENGTH, cached=4)
    response = await gateway.chat(max_tokens=50, temperature=0.5, seed=7)
    body = response.json()
    assert response.status_code == 200
    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["created"], body["model"]) == ("chat.completion", 1_700_000_000, "tiny")
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello there", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    (spec,) = gateway.router.specs
    assert body["usage"] == {
        "prompt_tokens": len(spec.prompt),
        "completion_tokens": len(tokens),
        "total_tokens": len(spec.prompt) + len(tokens),
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    assert (spec.gateway, spec.service, spec.sampling.temperature) == ("gateway-0", "tiny", 0.5)
    assert (spec.sampling.seed, spec.sampling.max_tokens) == (7, 50)
    decode = gateway.model.tokenizer.decode(spec.prompt, skip_special_tokens=False)
    assert decode == "<|im_start|>user\nHello world<|im_end|>\n<|im_start|>assistant\n"


async def test_tells_where_it_ran(gateway):
    headers = (await gateway.chat()).headers
    assert headers["x-meshserve-prefill"] == "prefill-0"
    assert headers["x-meshserve-decode"] == "decode-0"
    assert headers["x-meshserve-rule"] == "disaggregate"
    assert headers["x-meshserve-predicted-ttft-ms"] == "12.500"


async def test_takes_text_parts_and_developer_messages(gateway):
    parts = [{"type": "text", "text": "Hello "}, {"type": "text", "text": "world"}]
    messages = [{"role": "developer", "content": "Be brief"}, {"role": "user", "content": parts}]
    assert (await gateway.chat(messages=messages)).status_code == 200
    prompt = gateway.model.tokenizer.decode(gateway.router.specs[0].prompt, skip_special_tokens=False)
    assert "<|im_start|>system\nBe brief<|im_end|>" in prompt
    assert "<|im_start|>user\nHello \nworld<|im_end|>" in prompt


async def test_streams(gateway, events):
    gateway.says("Hello there")
    chunks = events(await gateway.chat(stream=True))
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == "Hello there"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert all("usage" not in chunk for chunk in chunks)


async def test_streams_usage_when_asked(gateway, events):
    tokens = gateway.says("Hello there", cached=3)
    chunks = events(await gateway.chat(stream=True, stream_options={"include_usage": True}))
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == len(tokens)
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


async def test_stream_has_route_headers(gateway):
    response = await gateway.chat(stream=True)
    assert response.headers["x-meshserve-rule"] == "disaggregate"
    assert response.headers["x-request-id"]


async def test_n_choices_have_their_own_seeds(gateway):
    body = (await gateway.chat(n=3, seed=5)).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    seeds = [spec.sampling.seed for spec in gateway.router.specs]
    assert seeds[0] == 5
    assert len(set(seeds)) == 3
    assert len({spec.id for spec in gateway.router.specs}) == 3
    assert body["usage"]["prompt_tokens"] == len(gateway.router.specs[0].prompt)
    assert body["usage"]["completion_tokens"] == 6


async def test_n_choices_interleave_in_a_stream(gateway, events):
    gateway.says("Hello there")
    chunks = events(await gateway.chat(n=2, stream=True))
    texts = {0: "", 1: ""}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"]["content"]
    assert texts == {0: "Hello there", 1: "Hello there"}


async def test_without_a_seed_each_request_draws_its_own(gateway):
    await gateway.chat()
    await gateway.chat()
    first, second = gateway.router.specs
    assert first.sampling.seed != second.sampling.seed


async def test_negative_seeds_are_fine(gateway):
    assert (await gateway.chat(seed=-1)).status_code == 200
    assert gateway.router.specs[0].sampling.seed >= 0


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_string_across_tokens(gateway, events, stream):
    """The stop string is spread over several tokens, and a false start of it is shown after all."""
    tokens = gateway.says("one ST two STOP three")
    response = await gateway.chat(stop=["STOP"], stream=stream)
    if stream:
        chunks = events(response)
        text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
        finish = chunks[-1]["choices"][0]["finish_reason"]
    else:
        choice = response.json()["choices"][0]
        text, finish = choice["message"]["content"], choice["finish_reason"]
        assert response.json()["usage"]["completion_tokens"] < len(tokens)
    assert (text, finish) == ("one ST two ", "stop")
    assert gateway.router.generations[0].cancelled.is_set()


async def test_min_tokens_come_before_stop_strings(gateway):
    tokens = gateway.says("STOP and STOP")
    first_stop = len(gateway.model.tokenizer.encode("STOP", add_special_tokens=False))
    body = (await gateway.chat(stop="STOP", min_tokens=first_stop + 1, max_tokens=len(tokens))).json()
    assert body["choices"][0]["message"]["content"] == "STOP and "


async def test_stop_token_is_not_part_of_the_text(gateway, script):
    tokens = gateway.model.tokenizer.encode("Hello", add_special_tokens=False)
    x = gateway.model.tokenizer.encode("x", add_special_tokens=False)
    gateway.router.script = lambda spec: script.one_by_one([*tokens, *x], FinishReason.STOP)
    body = (await gateway.chat(stop_token_ids=x)).json()
    assert body["choices"][0]["message"]["content"] == "Hello"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == len(tokens) + 1
    assert gateway.router.specs[0].sampling.stop_token_ids == tuple(x)


@pytest.mark.parametrize(
    "text", ["naïve café", "日本語テキスト", "emoji 👩‍👩‍👧‍👦 done", '\u0000\u001f"quotes"\\ \u2028']
)
async def test_never_half_a_character(gateway, events, text):
    gateway.says(text)
    chunks = events(await gateway.chat(stream=True))
    pieces = [chunk["choices"][0]["delta"]["content"] for chunk in chunks]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


async def test_logprobs(gateway, script):
    (token,) = gateway.model.tokenizer.encode("H", add_special_tokens=False)
    (other,) = gateway.model.tokenizer.encode("é", add_special_tokens=False)[:1]
    entry = TokenLogprobs(token, -0.25, [(token, -0.25), (other, -1.5)])
    gateway.router.script = lambda spec: [script.batch(token, finish=FinishReason.LENGTH, logprobs=[entry])]
    body = (await gateway.chat(logprobs=True, top_logprobs=2)).json()
    assert gateway.router.specs[0].sampling.logprobs == 2
    assert body["choices"][0]["logprobs"] == {
        "content": [
            {
                "token": "H",
                "logprob": -0.25,
                "bytes": [72],
                "top_logprobs": [
                    {"token": "H", "logprob": -0.25, "bytes": [72]},
                    {"token": "\ufffd", "logprob": -1.5, "bytes": [0xC3]},
                ],
            }
        ],
        "refusal": None,
    }


async def test_logprobs_in_a_stream(gateway, script, events):
    tokens = gateway.model.tokenizer.encode("Hé", add_special_tokens=False)
    gateway.router.script = lambda spec: [
        script.batch(
            token,
            finish=FinishReason.LENGTH if token == tokens[-1] else None,
            logprobs=[TokenLogprobs(token, -1.0, [])],
        )
        for token in tokens
    ]
    chunks = events(await gateway.chat(stream=True, logprobs=True))
    entries = [
        entry
        for chunk in chunks
        if chunk["choices"][0]["logprobs"]
        for entry in chunk["choices"][0]["logprobs"]["content"]
    ]
    assert [byte for entry in entries for byte in entry["bytes"]] == list("Hé".encode())


async def test_defaults_to_what_fits(gateway):
    await gateway.chat()
    spec = gateway.router.specs[0]
    assert spec.sampling.max_tokens == min(200, 256 - len(spec.prompt))


async def test_max_completion_tokens_wins(gateway):
    await gateway.chat(max_tokens=5, max_completion_tokens=9)
    assert gateway.router.specs[0].sampling.max_tokens == 9


async def test_a_stream_that_fails_midway_says_so(gateway, script, events):
    failure = RequestFailed("every engine failed", Fault.SERVER)
    gateway.router.script = lambda spec: [script.batch(10), failure]
    response = await gateway.chat(stream=True)
    assert response.status_code == 200
    last = events(response)[-1]
    assert last == {
        "error": {"message": "every engine failed", "type": "server_error", "param": None, "code": "request_failed"}
    }


async def test_null_is_the_same_as_absent(gateway):
    nulls = dict.fromkeys(
        ["max_tokens", "temperature", "n", "stop", "seed", "logit_bias", "stream", "tools", "logprobs"]
    )
    assert (await gateway.chat(**nulls)).status_code == 200


async def test_slo_and_priority_headers(gateway):
    headers = {"x-slo-ttft-ms": "250", "x-slo-tpot-ms": "12.5", "x-priority": "-3", "x-late": "reject"}
    body = {"model": "tiny-alias", "messages": [{"role": "user", "content": "hi"}]}
    response = await gateway.client.post("/v1/chat/completions", json=body, headers=headers)
    assert response.json()["model"] == "tiny-alias"
    spec = gateway.router.specs[0]
    assert (spec.service, spec.slo_ttft_s, spec.slo_tpot_s, spec.priority) == ("tiny", 0.25, 0.0125, -3)
    assert spec.late is Lateness.REJECT


async def test_a_stream_that_breaks_by_our_fault_says_so(gateway, events, script):
    gateway.router.script = lambda spec: [script.batch(10), ZeroDivisionError("secret")]
    response = await gateway.chat(stream=True)
    error = events(response)[-1]["error"]
    assert error["code"] == "internal_error"
    assert response.headers["x-request-id"] in error["message"]
    assert "secret" not in response.text


SCHEMA = {"type": "object", "properties": {"a": {"enum": ['\u00e9"x', "y"]}}, "required": ["a"]}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
GRAMMARS = [
    ({"response_format": {"type": "json_object"}}, '{"any": [1, null]}', "[1]"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        '{ "a":"\u00e9\\"x"}',
        '{"a":"z"}',
    ),
    ({"structured_outputs": {"json": SCHEMA}}, '{"a": "y"}', '{"a": "'),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, '{"a": "y"}', "{}"),
    ({"structured_outputs": {"json_object": True}}, "{}", "null"),
    ({"structured_outputs": {"json_object": True}}, "{" + " " * 16 + "}", "{" + " " * 17 + "}"),
    ({"structured_outputs": {"regex": "[a-c]{2}"}}, "ca", "cab"),
    ({"structured_outputs": {"choice": ["yes", 'n"\u00f6\n']}}, 'n"\u00f6\n', "no"),
    ({"structured_outputs": {"grammar": 'start: "a" NUMBER\nNUMBER: /[0-9]/'}}, "a7", "7a"),
]


@pytest.mark.parametrize("api", ["chat", "complete"])
@pytest.mark.parametrize(("body", "right", "wrong"), GRAMMARS)
async def test_what_an_answer_has_to_be_is_told_to_the_engine(gateway, model_folder, api, body, right, wrong):
    assert (await getattr(gateway, api)(**body, max_tokens=20)).status_code == 200
    grammar = gateway.router.specs[0].sampling.grammar
    tokenizer = LLTokenizer((model_folder / "tokenizer.json").read_text(), eos_token=2)
    for text, is_right in ((right, True), (wrong, False)):
        matcher = LLMatcher(tokenizer, grammar)
        taken = matcher.try_consume_tokens(tokenizer.tokenize_str(text))
        assert (taken == len(tokenizer.tokenize_str(text)) and matcher.is_accepting()) is is_right


@pytest.mark.parametrize("free", [{}, {"response_format": {"type": "text"}}, {"structured_outputs": {}}])
async def test_other_answers_are_free(gateway, free):
    assert (await gateway.chat(**free)).status_code == 200
    assert gateway.router.specs[0].sampling.grammar == ""
