"""Two servers share a call: one computes its prompt, the other one fetches the KV and answers."""

import json

import msgspec
import pytest

from mesh.wire.control import Role
from router.servers.forwarded_call import CHAT, AnswerForm, CallBody
from router.servers.prefill_call import prefill_body, with_kv_params
from tests.router.front import front_of
from tests.router.servers.nasty import answer, says, serving, whole

PARAMS = {"do_remote_prefill": True, "remote_block_ids": [[1, 2]], "remote_engine_id": "e", "remote_port": 5601}
USAGE = {"prompt_tokens": 7, "completion_tokens": 1}
PREFILLED = says(whole({"id": "p", "model": "m", "choices": [], "usage": USAGE, "kv_transfer_params": PARAMS}))
ROLES = (Role.PREFILL, Role.DECODE)


@pytest.fixture
def shared(tmp_path):
    def share(*servers, roles=ROLES):
        return front_of(tmp_path, *servers, policy="disaggregated", roles=roles)

    return share


async def test_the_decode_server_is_told_where_the_kv_is(shared):
    async with serving(PREFILLED, answer) as [prefill, decode], shared(prefill, decode) as front:
        text, _ = await front.stream(max_tokens=3, temperature=0, min_tokens=2)
        response = await front.chat(max_tokens=2)
    assert text == "w0 w1 w2 "
    assert response.json()["choices"][0]["message"]["content"] == "w0 w1 "
    [first, _] = prefill.asked
    assert (first.body["max_tokens"], first.body["stream"], first.body["temperature"]) == (1, False, 0)
    assert first.body["kv_transfer_params"]["do_remote_decode"] is True
    assert not {"stream_options", "min_tokens"} & first.body.keys()
    assert [asked.body["kv_transfer_params"] for asked in decode.asked] == [PARAMS, PARAMS]
    assert decode.asked[0].body["min_tokens"] == 2
    assert first.headers["x-request-id"] == decode.asked[0].headers["x-request-id"]
    assert [(one.prefill_engine, one.decode_engine) for one in front.records] == [("s0", "s1")] * 2


@pytest.mark.parametrize(
    "bad", [whole({"choices": []}), whole(b"[1"), whole({}, "500 Internal Server Error"), b"", whole(b" " * 2**21)]
)
async def test_a_prefill_that_fails_is_done_elsewhere(shared, bad):
    roles = (Role.PREFILL, Role.PREFILL, Role.DECODE)
    breaks = says(bad, then_closes=True)
    async with serving(breaks, PREFILLED, answer) as servers, shared(*servers, roles=roles) as front:
        for _ in range(4):
            text, _ = await front.stream(max_tokens=2)
            assert text == "w0 w1 "
    assert len(servers[2].asked) == 4


@pytest.mark.parametrize("more", [{"n": 2}, {"path": "/v1/completions", "prompt": ["a", "b"]}, {"best_of": 2}])
@pytest.mark.parametrize("stream", [False, True])
async def test_more_answers_than_one_are_for_the_first_server_alone(shared, more, stream):
    """KV is handed over once: a second answer would be computed from that of another prompt, or from nobody's."""
    async with serving(answer, answer) as [prefill, decode], shared(prefill, decode) as front:
        response = await front.chat(stream=stream, max_tokens=2, **more)
    assert (response.status_code, response.text.count("w1")) == (200, 1)
    [asked] = prefill.asked
    assert (asked.body["max_tokens"], asked.body["stream"], "kv_transfer_params" in asked.body) == (2, stream, False)
    assert not decode.asked
    assert [(one.outcome, one.output_tokens) for one in front.records] == [("finished", 2)]


async def test_what_has_no_answer_is_for_the_first_server_alone(shared):
    vectors = {"object": "list", "data": [], "usage": {"prompt_tokens": 2}}
    async with serving(says(whole(vectors)), answer) as [prefill, decode], shared(prefill, decode) as front:
        response = await front.client.post("/v1/embeddings", json={"model": "chat", "input": "a"})
    assert response.status_code == 200
    assert "kv_transfer_params" not in prefill.asked[0].body
    assert not decode.asked


def test_a_body_without_limits_gets_one_of_one_token():
    body = CallBody(CHAT, {"n": b"2", "max_completion_tokens": b"50", "best_of": b"3"}, AnswerForm.CHUNKS)
    asked = json.loads(prefill_body(CallBody(body.path, _raw(body.fields), body.form), "m"))
    assert {name: asked[name] for name in ("n", "max_tokens", "max_completion_tokens", "model")} == {
        "n": 1,
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "model": "m",
    }
    assert "best_of" not in asked


def test_parameters_are_added_as_they_came():
    assert json.loads(with_kv_params(b'{"a":1}', b'{"b": [2]}')) == {"a": 1, "kv_transfer_params": {"b": [2]}}
    assert with_kv_params(b'{"a":1}', b"") == b'{"a":1}'


def _raw(fields):
    return {name: msgspec.Raw(value) for name, value in fields.items()}
