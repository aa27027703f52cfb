"""Errors of servers behind a gateway: whose they are, and which server is asked after them."""

import pytest

from mesh.wire.control import ProcessState
from tests.router.front import CHAT, front_of
from tests.router.servers.nasty import STREAM, answer, chunk, event, says, serving, whole


async def test_a_server_without_its_model_leaves_and_comes_back_with_it(tmp_path):
    gone = says(whole({"error": {"message": "The model `m` does not exist.", "code": 404}}, "404 Not Found"))
    async with serving(gone, answer) as servers, front_of(tmp_path, *servers, metrics="off") as front:
        servers[0].models = ("other",)
        for _ in range(3):
            assert (await front.stream(max_tokens=1))[0] == "w0 "
        await front.until_serving(1)
        view = front.router.view().engines["s0"]
        assert (view.state, [one.service for one in view.failed]) == (ProcessState.READY, [CHAT])
        assert len(servers[0].asked) <= 1, "it is not asked again"
        servers[0].behaviour, servers[0].models = answer, ("other", "m")
        await front.until_serving(2)
    assert {record.outcome for record in front.records} == {"finished"}


async def test_a_request_that_waits_for_a_model_says_so(tmp_path):
    async with serving(answer) as [server], front_of(tmp_path, server, metrics="off", ttft_s=0.2) as front:
        server.models = ("other",)
        await front.until_serving(0)
        response = await front.chat()
        assert response.status_code == 503
        assert "s0: the server lists no model 'm' any more" in response.json()["error"]["message"]


async def test_the_servers_own_refusal_is_the_clients(tmp_path):
    wrong = {"error": {"message": "max_tokens is too large", "param": "max_tokens"}}
    async with serving(says(whole(wrong, "400 Bad Request"))) as [server], front_of(tmp_path, server) as front:
        for stream in (True, False):
            response = await front.chat(stream=stream)
            assert (response.status_code, response.json()) == (400, wrong)
        server.behaviour = says(whole({"error": {"message": "boom"}}, "500 Internal Server Error"))
        response = await front.chat()
        assert (response.status_code, response.json()["error"]["message"]) == (500, "boom")
    assert len(server.asked) == 4, "what fails a server is tried twice"


async def test_a_path_that_no_server_has_is_not_found(tmp_path):
    lacks = says(whole({"detail": "Not Found"}, "404 Not Found"))
    async with serving(lacks) as [server], front_of(tmp_path, server, metrics="off") as front:
        for _ in range(5):
            response = await front.client.post("/v1/embeddings", json={"model": CHAT, "input": "hello"})
            assert (response.status_code, response.json()) == (404, {"detail": "Not Found"})
        assert len(server.asked) == 10, "each is tried twice"
        server.behaviour = answer
        assert (await front.chat(max_tokens=1)).status_code == 200
    async with serving(lacks, answer) as servers, front_of(tmp_path, *servers, metrics="off") as front:
        for _ in range(4):
            assert (await front.chat(max_tokens=1)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_server_that_sends_what_is_no_answer_is_a_bad_gateway(tmp_path, stream, path):
    page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 17\r\n\r\n<html>Hello</html"
    async with serving(says(page)) as [server], front_of(tmp_path, server, metrics="off") as front:
        response = await front.chat(path, stream=stream, max_tokens=4)
        assert response.status_code == 502, response.text
        error = response.json()["error"]
        assert error["type"] == ("api_error" if path == "/v1/messages" else "server_error")
        assert "'text/html'" in error["message"]


async def test_an_error_with_a_good_status_is_an_error(tmp_path):
    wrong = {"error": {"message": "max_tokens is too large", "code": 400}}
    async with serving(says(whole(wrong))) as [server], front_of(tmp_path, server) as front:
        for behaviour in (says(whole(wrong)), says(STREAM + event(chunk()) + event(wrong) + b"0\r\n\r\n")):
            server.behaviour = behaviour
            response = await front.chat(stream=True)
            assert (response.status_code, response.json()) == (400, wrong)
        server.behaviour = says(whole({"error": "boom"}))
        response = await front.chat()
        assert (response.status_code, response.json()) == (500, {"error": "boom"})
    assert {record.outcome for record in front.records} == {"failed"}


async def test_who_is_refused_as_all_servers_are_too_busy_is_told_when_these_are_not(tmp_path):
    busy = [
        says(whole({"error": {"message": "full"}}, "429 Too Many Requests", f"retry-after: {after_s}\r\n"))
        for after_s in (30, 50)
    ]
    async with serving(*busy) as servers, front_of(tmp_path, *servers, metrics="off", ttft_s=0.3) as front:
        for stream in (True, False):
            response = await front.chat(stream=stream)
            assert response.status_code == 429, response.text
            assert 15 < int(response.headers["retry-after"]) <= 30, "the first of them to ask for more"
