"""What servers say of themselves, and what those say that are none."""

import asyncio
from collections.abc import Mapping

import aiohttp
import pytest
from aiohttp import web

from router.servers.facts import ServedName, ServerFacts, ServerKind
from router.servers.identify import ServerError, base_url, identify

MODELS = {"object": "list", "data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]}


async def ask(answers: Mapping[str, object], kind: ServerKind | None = None, deadline_s: float = 5.0) -> ServerFacts:
    """Identify a server with these answers by path: JSON, or a response."""

    async def answer(request: web.Request) -> web.StreamResponse:
        found = answers.get(request.path, web.Response(status=404))
        if callable(found):
            found = await found(request)
        return found if isinstance(found, web.StreamResponse) else web.json_response(found)

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with aiohttp.ClientSession() as session:
            return await identify(session, f"http://127.0.0.1:{runner.addresses[0][1]}/v1/", kind, deadline_s)
    finally:
        await runner.cleanup()


def test_vllm_says_its_version_and_returns_ids_since_0_10_2():
    facts = asyncio.run(ask({"/v1/models": MODELS, "/version": {"version": "0.19.1rc1+cpu"}}))
    assert facts == ServerFacts(ServerKind.VLLM, "0.19.1rc1+cpu", (ServedName("m", 4096),), True, True, True, True)
    assert facts.title == "vllm 0.19.1rc1+cpu"
    older = asyncio.run(ask({"/v1/models": MODELS, "/version": {"version": "0.9.2"}}))
    assert not older.returns_token_ids


def test_others_are_known_by_who_owns_their_models():
    sglang = {"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 100}]}
    facts = asyncio.run(ask({"/v1/models": sglang, "/get_server_info": {"version": "0.5.3"}}))
    assert (facts.title, facts.continues_messages, facts.returns_token_ids) == ("sglang 0.5.3", True, False)
    llama = {"data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 2048}}]}
    facts = asyncio.run(ask({"/v1/models": llama, "/props": {"build_info": "b6000-abc"}}))
    assert (facts.title, facts.models) == ("llama.cpp b6000-abc", (ServedName("m", 2048),))
    other = {"data": [{"id": "m", "owned_by": "me"}, {"id": 7}, "x", {"id": "a\nb"}, {"id": "n"}]}
    facts = asyncio.run(ask({"/v1/models": other}))
    assert facts == ServerFacts(ServerKind.OPENAI, "", (ServedName("m"), ServedName("n")))


def test_what_it_is_said_to_be_comes_before_what_it_says():
    assert asyncio.run(ask({"/v1/models": MODELS}, ServerKind.SGLANG)).kind is ServerKind.SGLANG


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (web.Response(status=401), "asks for a key"),
        (web.Response(status=500), "answers with status 500"),
        (web.Response(status=404), "answers with status 404: is it the address of an OpenAI server"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "redirects to"),
        (web.Response(text="<html>"), "does not answer with JSON"),
        (web.Response(text="[" * 100_000), "does not answer with JSON"),
        ({"object": "list"}, "does not list models"),
        ([], "does not list models"),
        ({"data": []}, "serves no model"),
        ({"data": [{"id": "x" * 300}]}, "serves no model"),
        (web.Response(body=b"[" + b"1," * (3 * 2**20)), "more than 4 MiB"),
    ],
)
def test_what_is_no_such_server_is_told_in_one_line(answer: object, reason: str):
    with pytest.raises(ServerError, match=reason) as caught:
        asyncio.run(ask({"/v1/models": answer}))
    assert "\n" not in str(caught.value)


def test_one_that_speaks_no_http_is_told_in_one_line():
    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    async def asks() -> None:
        server = await asyncio.start_server(greets, "127.0.0.1", 0)
        async with server, aiohttp.ClientSession() as session:
            await identify(session, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    with pytest.raises(ServerError, match="does not speak HTTP") as caught:
        asyncio.run(asks())
    assert "\n" not in str(caught.value)


def test_one_that_hangs_is_given_up():
    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError(request)

    with pytest.raises(ServerError, match=r"did not answer within 0\.2 s"):
        asyncio.run(ask({"/v1/models": hang}, deadline_s=0.2))


def test_one_whose_version_does_not_come_can_be_used():
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(3)
        return web.Response()

    facts = asyncio.run(ask({"/v1/models": MODELS, "/version": hang}, deadline_s=0.4))
    assert (facts.kind, facts.version) == (ServerKind.VLLM, "")


def test_one_that_is_not_there_is_named():
    async def nobody() -> None:
        async with aiohttp.ClientSession() as session:
            await identify(session, "http://127.0.0.1:9")

    with pytest.raises(ServerError, match=r"http://127.0.0.1:9 cannot be reached: .*"):
        asyncio.run(nobody())


def test_paths_begin_where_the_server_does():
    assert [base_url(url) for url in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h/api/v1/")] == [
        "http://h:1",
        "http://h:1",
        "http://h:1",
        "http://h/api",
    ]
