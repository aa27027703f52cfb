import httpx
import pytest

import router.api.openai.input.grammars
from mesh.wire.control import ProcessState
from router.generation import Draining, Fault, NoEngines, Overloaded, RequestFailed

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def error_of(response, status, code=None, param=None):
    """The message of an error in OpenAI's shape."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert code is None or error["code"] == code
    assert response.headers["x-request-id"]
    return error["message"]


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("temperature", 2.5), ("temperature", "hot"), ("temperature", -1), ("top_p", 0), ("top_p", 1.5), ("top_k", -2),
        ("min_p", 2), ("n", 0), ("n", 1000), ("n", 1.5), ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", True),
        ("max_tokens", 201), ("presence_penalty", 3), ("frequency_penalty", -3), ("repetition_penalty", 0),
        ("seed", "x"), ("seed", 2**64), ("stop", 5), ("stop", [""]), ("stop", ["x"] * 17), ("stop", [1]),
        ("stop", "x" * 1025), ("stop", ["x" * 65] * 16),
        ("stop_token_ids", [-1]), ("stop_token_ids", [100_000]), ("logit_bias", {"100000": 1}),
        ("logit_bias", {"1": 101}),
        ("min_tokens", 300), ("stream_options", {"include_usage": True}), ("stream", "yes"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_bad_parameter(gateway, path, param, value):
    body = {"model": "tiny", "prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}]}
    response = await gateway.client.post(path, json=body | {param: value})
    assert error_of(response, 400, param=response.json()["error"]["param"]).startswith(param)
    assert gateway.router.specs == []


SCHEMA_PARAM = "response_format.json_schema.schema"


def form(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"logprobs": 21}, "logprobs"), ({"logprobs": True}, "logprobs"), ({"suffix": "x"}, "suffix"),
        ({"prompt": ""}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"), ({"prompt": [100_000]}, "prompt"), ({"prompt": None}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
    ],
)  # fmt: skip
async def test_bad_completion(gateway, body, param):
    error_of(await gateway.complete(**body), 400, param=param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"), ({"messages": "hi"}, "messages"), ({"logprobs": 3}, "logprobs"),
        ({"messages": [{"role": "clown", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].image_url"),
        ({"messages": [{"role": "user", "content": "go away"}]}, "messages"),
        ({"top_logprobs": 2}, "top_logprobs"), ({"tools": [{}]}, "tools[0].type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": form({"type": "nosuch"})}, SCHEMA_PARAM),
        ({"response_format": form([])}, SCHEMA_PARAM),
        ({"structured_outputs": {"regex": "[a-"}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [""]}}, "structured_outputs.choice[0]"),
        ({"structured_outputs": {"grammar": "start: x"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": "5"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
        ({"structured_outputs": {"json_object": True, "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "ignore_eos"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_completion_tokens": 500}, "max_completion_tokens"),
    ],
)  # fmt: skip
async def test_bad_chat(gateway, body, param):
    error_of(await gateway.chat(**body), 400, param=param)


async def test_says_why_a_grammar_cannot_be_followed_in_one_line(gateway):
    says = error_of(await gateway.chat(structured_outputs={"regex": "[a-"}), 400, param="structured_outputs.regex")
    assert says.startswith("structured_outputs.regex: cannot be followed: ")
    assert says.endswith("unclosed character class")
    assert "\n" not in says
    says = error_of(await gateway.chat(response_format=form({"type": "nosuch"})), 400, "invalid_value", SCHEMA_PARAM)
    assert says == "response_format.json_schema.schema: cannot be followed: Invalid type: nosuch"


async def test_says_what_would_be_right(gateway):
    assert error_of(await gateway.complete(stop=5), 400, param="stop") == "stop: must be a string or a list of strings"
    response = await gateway.client.post(COMPLETIONS, json={"model": "tiny"})
    assert error_of(response, 400, "missing_required_parameter", "prompt") == "prompt: is required"


async def test_unknown_model(gateway):
    message = error_of(await gateway.chat(model="gpt-4"), 404, "model_not_found", "model")
    assert "'gpt-4'" in message
    assert "tiny" in message
    error_of(await gateway.client.get("/v1/models/gpt-4"), 404, "model_not_found", "model")


async def test_prompt_too_long_names_both_lengths(gateway):
    response = await gateway.complete(prompt=[5] * 300)
    message = error_of(response, 400, "context_length_exceeded", "prompt")
    assert "256" in message
    assert "300" in message
    response = await gateway.complete(prompt=[5] * 200, max_tokens=100)
    message = error_of(response, 400, "context_length_exceeded", "prompt")
    assert "200" in message
    assert "300" in message


async def test_body_too_large(gateway):
    response = await gateway.complete(prompt="x" * 30_000)
    assert "20000" in error_of(response, 413, "request_too_large")
    assert response.headers["connection"] == "close"


async def test_chunked_body_too_large(gateway):
    async def parts():
        for _ in range(30):
            yield b" " * 1000

    error_of(await gateway.client.post(CHAT, content=parts()), 413, "request_too_large")


@pytest.mark.parametrize("content", [b"", b"{", b"nonsense", b"\xff\xfe", b'{"prompt": "\\ud800"}', b"[" * 5000])
async def test_invalid_json(gateway, content):
    error_of(await gateway.client.post(COMPLETIONS, content=content), 400, "invalid_json")


@pytest.mark.parametrize("content", [b"[]", b"3", b"null", b'"text"'])
async def test_body_is_no_object(gateway, content):
    error_of(await gateway.client.post(CHAT, content=content), 400, "invalid_json")


async def test_unknown_path_and_wrong_method(gateway):
    assert "/v1/nothing" in error_of(await gateway.client.get("/v1/nothing"), 404, "not_found")
    error_of(await gateway.client.get(CHAT), 405, "method_not_allowed")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Overloaded("too much to do", 2.3), 429, "rate_limit_exceeded"),
        (NoEngines("no engine serves tiny", 1.0), 503, "no_engines"),
        (Draining(), 503, "draining"),
        (RequestFailed("it fits no engine", Fault.CLIENT), 400, "request_failed"),
        (RequestFailed("engines failed", Fault.SERVER), 500, "request_failed"),
        (RequestFailed("servers failed", Fault.UPSTREAM), 502, "request_failed"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
async def test_what_the_router_says(gateway, error, status, code, stream, at_once):
    """Until the first token an error has its own status, for streams too."""
    gateway.router.refusal = error if at_once else None
    gateway.router.script = lambda spec: [error]
    response = await gateway.chat(stream=stream, n=2)
    assert error_of(response, status, code) == str(error)
    if status == 429:
        assert response.headers["retry-after"] == "3"
    assert all(generation.cancelled.is_set() for generation in gateway.router.generations)


async def test_refused_half_way_runs_nothing(gateway):
    """The second of three choices is refused: the first one is cancelled."""
    submit = gateway.router.submit

    def once(spec, tenant="", trace=None):
        generation = submit(spec, tenant, trace)
        gateway.router.refusal = Overloaded("full", 1.0)
        return generation

    gateway.router.submit = once
    error_of(await gateway.chat(n=3), 429)
    assert [generation.cancelled.is_set() for generation in gateway.router.generations] == [True]


async def test_unexpected_exception_has_no_stack_trace(gateway, logged):
    def broken(spec):
        raise ZeroDivisionError("secret")

    gateway.router.script = broken
    response = await gateway.client.post(
        COMPLETIONS, json={"model": "tiny", "prompt": "x"}, headers={"x-request-id": "req-1"}
    )
    message = error_of(response, 500, "internal_error")
    assert "req-1" in message
    assert "secret" not in response.text
    assert [(entry["event"], entry["request"]) for entry in logged] == [("request failed", "req-1")]


@pytest.mark.parametrize(
    ("name", "value"),
    [("x-slo-ttft-ms", "0"), ("x-slo-ttft-ms", "soon"), ("x-slo-tpot-ms", "-4"), ("x-slo-tpot-ms", "nan"),
     ("x-slo-ttft-ms", "inf"), ("x-slo-ttft-ms", "1e-300"), ("x-slo-ttft-ms", "1_0"), ("x-slo-ttft-ms", "0x10"),
     ("x-slo-ttft-ms", "9" * 5000), ("x-slo-ttft-ms", ""), ("x-slo-ttft-ms", "+5"), ("x-priority", "1_0"),
     ("x-priority", "+1"), ("x-priority", "1.0"), ("x-priority", "-"), ("x-priority", "9" * 5000),
     ("x-priority", "\xb2"),
     ("x-priority", "high"), ("x-priority", "101"), ("x-late", "maybe"), ("x-late", "")],
)  # fmt: skip
async def test_bad_header(gateway, name, value):
    response = await gateway.client.post(
        COMPLETIONS, json={"model": "tiny", "prompt": "x"}, headers={name: value.encode("latin-1")}
    )
    assert repr(value[:32]) in error_of(response, 400, param=name)


async def test_request_ids(gateway):
    own = await gateway.client.get("/live", headers={"x-request-id": "my-id.1"})
    assert own.headers["x-request-id"] == "my-id.1"
    insane = await gateway.client.get("/live", headers={"x-request-id": "a b"})
    assert insane.headers["x-request-id"] != "a b"


async def test_health(gateway, script):
    assert (await gateway.client.get("/health")).status_code == 200
    gateway.engines["decode-0"] = script.engine(ProcessState.STARTING)
    error_of(await gateway.client.get("/health"), 503, "no_engines")
    gateway.router.state = ProcessState.STARTING
    error_of(await gateway.client.get("/health"), 503, "starting")
    gateway.router.state = ProcessState.DRAINING
    error_of(await gateway.client.get("/health"), 503, "draining")
    assert (await gateway.client.get("/live")).status_code == 200


async def test_metrics(gateway):
    gateway.says("Hello there", cached=2)
    await gateway.chat()
    gateway.router.refusal = Overloaded("full", 1.0)
    await gateway.chat()
    text = (await gateway.admin.get("/metrics")).text
    num_tokens = len(gateway.model.tokenizer.encode("Hello there"))
    for line in (
        'vllm:time_to_first_token_seconds_count{model_name="tiny"} 1.0',
        f'vllm:generation_tokens_total{{model_name="tiny"}} {num_tokens:.1f}',
        'vllm:request_success_total{finished_reason="length",model_name="tiny"} 1.0',
        'vllm:prefix_cache_hits_total{model_name="tiny"} 2.0',
        'meshserve_dispatches_total{model_name="tiny",rule="disaggregate"} 1.0',
        'meshserve_request_failures_total{code="rate_limit_exceeded",model_name="tiny"} 1.0',
        'meshserve_prediction_error_ratio_count{model_name="tiny"} 1.0',
        'meshserve_slo_requests_total{model_name="tiny"} 2.0',
        'meshserve_slo_attained_total{model_name="tiny",promise="both"} 1.0',
    ):
        assert line in text, line


async def test_openapi_describes_the_bodies(gateway):
    document = (await gateway.admin.get("/openapi.json")).json()
    body = document["paths"][CHAT]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["messages"]["items"]["properties"]["role"]
    assert "$ref" not in httpx.Response(200, json=body).text


async def test_grammars_are_bounded(gateway, monkeypatch):
    monkeypatch.setattr(router.api.openai.input.grammars, "MAX_GRAMMAR_BYTES", 200)
    assert (await gateway.chat(structured_outputs={"choice": ["yes", "no"]})).status_code == 200
    says = error_of(
        await gateway.chat(structured_outputs={"choice": ["x" * 300]}), 400, param="structured_outputs.choice"
    )
    assert "at most 200 characters" in says
