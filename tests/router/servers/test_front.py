"""A gateway in front of servers, most of which behave badly: clients get whole answers, and nobody else notices."""

import asyncio
import json
import ssl
import subprocess
from dataclasses import replace

import aiohttp
import pytest

from mesh.access.keys import UNLIMITED, KeyLimits
from mesh.topology.schema import PolicySpec
from mesh.wire.control import Drain
from router.api.access.rates import Charge, Meter
from router.api.http.callers import Caller
from router.servers.identify import ServerError, identify
from tests.router.front import CHAT, DEADLINE_S, HELLO, front_of, topology_of
from tests.router.servers.nasty import STREAM, NastyServer, answer, chunk, chunked, event, hangs, says, serving, whole


async def test_a_stream_is_passed_on_with_our_names_in_it(tmp_path):
    async with serving(answer) as [server], front_of(tmp_path, server) as front:
        text, events = await front.stream(max_tokens=3, top_k=7, whatever={"a": [1]})
    assert text == "w0 w1 w2 "
    assert {(one["id"][:9], one["model"]) for one in events} == {("chatcmpl-", CHAT)}
    assert [one["choices"][0]["finish_reason"] for one in events][-1] == "stop"
    assert all("usage" not in one for one in events), "nobody asked for it"
    [asked] = server.asked
    assert asked.body == {
        "model": "m", "messages": HELLO, "stream": True, "max_tokens": 3, "top_k": 7, "whatever": {"a": [1]},
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    [record] = front.records
    assert (record.outcome, record.output_tokens, record.prefill_engine) == ("finished", 3, "s0")


async def test_usage_comes_if_it_is_asked_for_and_whole_answers_are_whole(tmp_path):
    async with serving(answer) as [server], front_of(tmp_path, server) as front:
        _, events = await front.stream(model="alias", stream_options={"include_usage": True, "other": 1})
        response = await front.chat(max_tokens=2)
    assert events[-1]["usage"]["completion_tokens"] == 3
    assert events[-1]["model"] == "alias"
    assert server.asked[0].body["stream_options"] == {"include_usage": True, "other": 1}
    body = response.json()
    assert (body["model"], body["extra"], body["id"][:9]) == (CHAT, [1], "chatcmpl-")
    assert body["choices"][0]["message"]["content"] == "w0 w1 "
    assert response.headers["x-meshserve-prefill"] == "s0"
    assert [record.output_tokens for record in front.records] == [3, 2]


async def test_other_paths_are_passed_on_as_they_are(tmp_path):
    vectors = {
        "object": "list",
        "id": "e-1",
        "model": "m",
        "data": [{"embedding": [0.5]}],
        "usage": {"prompt_tokens": 2},
    }
    named = b'event: response.delta\ndata: {"type":"response.delta"}\n\n'
    async with serving(says(whole(vectors))) as [server], front_of(tmp_path, server) as front:
        response = await front.client.post("/v1/embeddings", json={"model": CHAT, "input": ["a", "b"]})
        assert response.json() == vectors | {"model": CHAT}
        last = named.replace(b"delta", b"completed")
        server.behaviour = says(STREAM + chunked(named) + chunked(last) + b"0\r\n\r\n")
        response = await front.client.post("/v1/responses", json={"model": CHAT, "input": "a", "stream": True})
        assert response.text == (named + last).decode()
    assert [(asked.path, asked.body["model"]) for asked in server.asked] == [
        ("/v1/embeddings", "m"),
        ("/v1/responses", "m"),
    ]


@pytest.mark.parametrize(
    ("path", "asked", "answered"),
    [
        (
            "/v1/embeddings",
            {"input": [[1, 2]], "encoding_format": "base64", "dimensions": 2, "new": [1]},
            {"data": "AA=="},
        ),
        ("/v1/rerank", {"query": "a", "documents": ["b", {"text": "c", "image": "d"}], "top_n": 1}, {"results": [1.5]}),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["c", "d"], "truncate_prompt_tokens": -1}, {"data": [{}]}),
    ],
)
async def test_calls_for_vectors_and_scores_are_passed_on_with_every_field(tmp_path, path, asked, answered):
    async with serving(says(whole(answered | {"model": "m"}))) as [server], front_of(tmp_path, server) as front:
        response = await front.client.post(path, json={"model": CHAT, **asked})
        assert (response.status_code, response.json()) == (200, answered | {"model": CHAT})
    assert [(one.path, one.body) for one in server.asked] == [(path, {"model": "m", **asked})]


async def test_headers_of_the_connection_and_keys_end_at_the_gateway(tmp_path):
    async with serving(answer) as [server]:
        settings = {"headers": {"x-pool": "blue"}, "api_key_file": tmp_path / "key"}
        (tmp_path / "key").write_text("theirs\n")
        async with front_of(tmp_path, server, **settings) as front:
            mine = {
                "authorization": "Bearer mine",
                "x-hop": "1",
                "connection": "x-hop",
                "x-user": "u",
                "x-request-id": "r",
            }
            answered = await front.client.post(
                "/v1/chat/completions", json={"model": CHAT, "messages": HELLO}, headers=mine | {"cookie": "c=1"}
            )
            assert answered.headers["x-request-id"] == "r"
    headers = server.asked[0].headers
    assert headers["authorization"] == "Bearer theirs"
    assert (headers["x-pool"], headers["x-user"], headers["x-request-id"]) == ("blue", "u", "r")
    assert headers["accept-encoding"] == "identity"
    assert not {"x-hop", "cookie"} & headers.keys()


@pytest.mark.parametrize(
    "bad",
    [
        says(b"", then_closes=True),
        says(b"nonsense\r\n\r\n", then_closes=True),
        says(whole({"error": {"message": "boom"}}, "500 Internal Server Error")),
        says(whole({"error": "no"}, "401 Unauthorized")),
        says(whole("moved", "302 Found", "location: http://127.0.0.1:1/\r\n")),
        says(whole({"error": "later"}, "503 Service Unavailable")),
        says(whole(b"\x1f\x8b", headers="content-type: text/event-stream\r\ncontent-encoding: gzip\r\n")),
        says(whole({"choices": []})),
        says(whole({"error": {"message": "boom"}})),
        says(STREAM + b"0\r\n\r\n"),
        says(STREAM + event(b"{nonsense")),
        says(STREAM + event(b"[1, 2]")),
        says(STREAM + event({"error": {"message": "out of memory"}})),
        says(STREAM + chunked(b"data: " + b"x" * (3 << 20))),
        says(STREAM + b"zz\r\n"),
        says(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", then_closes=True),
    ],
)
async def test_what_fails_before_its_first_token_goes_to_another_server(tmp_path, bad):
    async with serving(bad, answer) as servers, front_of(tmp_path, *servers) as front:
        for _ in range(2):
            assert (await front.stream(max_tokens=2))[0] == "w0 w1 "
    assert servers[0].asked, "the bad one was tried"
    assert {record.outcome for record in front.records} == {"finished"}


async def test_a_server_that_is_gone_is_noticed_and_comes_back(tmp_path):
    async with serving(answer, answer) as servers, front_of(tmp_path, *servers) as front:
        await servers[0].stop()
        for _ in range(3):
            assert (await front.stream(max_tokens=1))[0] == "w0 "
        await front.until_serving(1)
        await servers[0].start()
        await front.until_serving(2)


async def test_a_client_that_leaves_is_cancelled_at_the_server(tmp_path):
    async def begins(asked, writer):
        writer.write(STREAM + event(chunk("a")))
        await hangs(asked, writer)

    async with serving(begins) as [server], front_of(tmp_path, server) as front:
        for body in ({"stream": True}, {}):
            server.behaviour = begins if body else hangs
            await _leave(front, {"model": CHAT, "messages": HELLO, **body})
            async with asyncio.timeout(DEADLINE_S):
                await server.asked[-1].gone.wait()
        assert len(front.router.calls) == 0
    assert [record.outcome for record in front.records] == ["cancelled", "cancelled"]


async def _leave(front, body):
    """Ask, and hang up once the answer has begun, or, if it does not begin, once the server was asked."""
    data, has_asked, begun = json.dumps(body).encode(), asyncio.Event(), asyncio.Event()

    async def receive():
        if not has_asked.is_set():
            has_asked.set()
            return {"type": "http.request", "body": data}
        if body.get("stream"):
            await begun.wait()
        else:
            await asyncio.sleep(0.2)
        return {"type": "http.disconnect"}

    async def send(message):
        begun.set()

    scope = {
        "type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "http_version": "1.1",
        "headers": [(b"content-type", b"application/json"), (b"host", b"gateway")], "client": ("127.0.0.1", 5),
        "scheme": "http", "server": ("gateway", 80), "raw_path": b"/v1/chat/completions", "root_path": "",
    }  # fmt: skip
    await front.app(scope, receive, send)


async def test_a_server_that_falls_silent_is_left(tmp_path):
    async with serving(hangs, answer) as servers, front_of(tmp_path, *servers, read_timeout_s=0.3, ttft_s=0.1) as front:
        front.router.choose_policy(PolicySpec("round_robin"))
        for _ in range(2):
            assert (await front.stream(max_tokens=1))[0] == "w0 "
    assert servers[0].asked
    assert {record.outcome for record in front.records} == {"finished"}


async def test_an_answer_that_nobody_bounds_may_be_long(tmp_path):
    async def talks(asked, writer):
        writer.write(STREAM + event(chunk("a")) * 6000 + event(chunk("", "stop")) + event(b"[DONE]") + b"0\r\n\r\n")

    async with serving(talks) as [server], front_of(tmp_path, server) as front:
        text, events = await front.stream()
        assert (len(text), events[-1]["choices"][0]["finish_reason"]) == (6000, "stop")


async def test_an_estimated_length_is_no_reason_to_refuse_a_prompt(tmp_path):
    """The server says itself what is too long: it may count fewer tokens than four bytes for each."""
    async with serving(answer) as [server], front_of(tmp_path, server, kind="vllm") as front:
        server.metrics = b'vllm:cache_config_info{block_size="16",num_gpu_blocks="10"} 1\n'
        async with asyncio.timeout(DEADLINE_S):
            while front.router.view().smallest_pool(CHAT) != 160:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for more in ({"max_tokens": 3}, {}):
            response = await front.chat(messages=[{"role": "user", "content": "word " * 1000}], **more)
            assert response.status_code == 200, response.text
    assert all(len(asked.body["messages"][0]["content"]) == 5000 for asked in server.asked)


async def test_a_completion_of_several_prompts_is_not_cut(tmp_path):
    async def talks(asked, writer):
        for index in range(len(asked.body["prompt"])):
            choice = {"index": index, "text": "a", "finish_reason": None}
            writer.write((b"" if index else STREAM) + event({"choices": [choice]}) * 50)
        writer.write(event(b"[DONE]") + b"0\r\n\r\n")

    async with serving(talks) as [server], front_of(tmp_path, server) as front:
        for prompts in (["a"] * 5, [[1]] * 5):
            answer = await front.chat("/v1/completions", prompt=prompts, max_tokens=50, stream=True)
            assert answer.text.count('"a"') == 250


@pytest.mark.parametrize("counted", [10**12, -5])
async def test_counts_beyond_reason_take_no_memory_and_give_no_credit(tmp_path, counted):
    usage = {
        "prompt_tokens": counted,
        "completion_tokens": counted,
        "prompt_tokens_details": {"cached_tokens": counted},
    }

    async def boasts(asked, writer):
        last = {**chunk("", "stop"), "usage": usage}
        choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
        if asked.body.get("stream"):
            writer.write(STREAM + event(chunk("a")) + event(last) + event(b"[DONE]") + b"0\r\n\r\n")
        else:
            writer.write(whole({"id": "theirs", "model": "m", "choices": [choice], "usage": usage}))

    async with serving(boasts) as [server], front_of(tmp_path, server) as front:
        assert (await front.stream(max_tokens=4))[0] == "a"
        assert (await front.chat(max_tokens=4)).status_code == 200
        assert all(0 < record.output_tokens <= 100 for record in front.records)


async def test_endless_events_end(tmp_path):
    async def talks(asked, writer):
        writer.write(STREAM)
        while True:
            writer.write(event(chunk("a")) * 50)
            await writer.drain()
            await asyncio.sleep(0)

    async with serving(talks) as [server], front_of(tmp_path, server) as front:
        text, _ = await front.stream(max_tokens=10)
        assert 10 <= len(text) <= 1000
        async with asyncio.timeout(DEADLINE_S):
            await server.asked[-1].gone.wait()


async def test_a_drained_server_ends_what_it_has_and_takes_nothing_new(tmp_path):
    goes_on = asyncio.Event()

    async def waits(asked, writer):
        writer.write(STREAM + event(chunk("a ")))
        await goes_on.wait()
        writer.write(event(chunk("b", "stop")) + event(b"[DONE]") + b"0\r\n\r\n")

    async with serving(waits, answer) as servers, front_of(tmp_path, *servers) as front:
        running = asyncio.create_task(front.stream())
        async with asyncio.timeout(DEADLINE_S):
            while not servers[0].asked:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        front.router.order("s0", Drain())
        await front.until_serving(1)
        for _ in range(3):
            assert (await front.stream(max_tokens=1))[0] == "w0 "
        goes_on.set()
        assert (await running)[0] == "a b"
        front.router.order("s0", Drain(undo=True))
        await front.until_serving(2)
    assert len(servers[0].asked) == 1


async def test_a_canary_gets_its_share(tmp_path):
    async with serving(answer, answer) as servers:
        topology = topology_of(servers)
        stable, canary = topology.engines
        canary = replace(canary, server=replace(canary.server, weight=0.25))
        async with front_of(tmp_path, *servers, topology=replace(topology, engines=(stable, canary))) as front:
            for _ in range(15):
                await front.stream(max_tokens=1)
    assert [len(server.asked) for server in servers] == [12, 3]


def _certificate(folder):
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@pytest.mark.parametrize("settings", [{"tls_ca": "cert.pem"}, {"tls_insecure": True}])
async def test_servers_may_speak_tls(tmp_path, settings):
    cert, key = _certificate(tmp_path)
    certificates = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificates.load_cert_chain(cert, key)
    if "tls_ca" in settings:
        settings = {"tls_ca": cert}
    server = NastyServer(answer, certificates=certificates)
    await server.start()
    try:
        async with front_of(tmp_path, server, **settings) as front:
            for _ in range(2):
                assert (await front.stream(max_tokens=1))[0] == "w0 "
    finally:
        await server.stop()


async def test_a_certificate_that_cannot_be_checked_is_told_with_what_checks_it(tmp_path):
    certificates = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificates.load_cert_chain(*_certificate(tmp_path))
    server = NastyServer(answer, certificates=certificates)
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(ServerError, match=r"self-signed certificate.*tls_ca"):
                await identify(session, server.url)
    finally:
        await server.stop()


async def test_keys_are_charged_for_what_the_server_counted(tmp_path):
    meter, limits = Meter(), KeyLimits(services=("other",))

    class Rights:
        def __init__(self, limits):
            self.limits = limits

        def begin(self, num_tokens):
            return Charge(meter, num_tokens)

        def headers(self):
            return []

    class Keyed:
        rights = Rights(UNLIMITED)

        def admit(self, scope, headers):
            return Caller("peer", "tenant", self.rights)

    callers = Keyed()
    meter.begin(UNLIMITED, 0, 1, 0.0)
    async with serving(answer) as [server], front_of(tmp_path, server, callers=callers) as front:
        await front.stream(max_tokens=3)
        assert meter.num_tokens == 7 + 3
        callers.rights = Rights(limits)
        assert (await front.chat()).status_code == 403
    assert len(server.asked) == 1
