"""POST /mesh/chat: the playground asks the clients' API."""

from router.ui.chat import forwarded

HELLO = [{"role": "user", "content": "Hello world"}]
BODY = {"model": "tiny", "messages": HELLO, "max_tokens": 4}


async def test_the_answer_is_that_of_the_public_api(gateway):
    gateway.says("good morning")
    response = await gateway.admin.post("/mesh/chat", json=BODY, headers={"x-request-id": "asked-here"})
    assert response.json()["choices"][0]["message"]["content"] == "good morning"
    assert response.headers.get_list("x-request-id") == ["asked-here"]
    assert "x-meshserve-prefill" in response.headers


async def test_an_answer_streams(gateway, events):
    gateway.says("good morning")
    response = await gateway.admin.post("/mesh/chat", json=BODY | {"stream": True})
    assert "".join(one["choices"][0]["delta"].get("content") or "" for one in events(response)) == "good morning"


async def test_promises_come_through(gateway):
    headers = {"x-slo-ttft-ms": "500", "x-slo-tpot-ms": "50"}
    await gateway.admin.post("/mesh/chat", json=BODY, headers=headers)
    [spec] = gateway.router.specs
    assert (spec.slo_ttft_s, spec.slo_tpot_s) == (0.5, 0.05)


async def test_what_the_api_refuses_is_told_in_its_words(gateway):
    refused = await gateway.admin.post("/mesh/chat", json=BODY | {"tools": 3})
    directly = await gateway.client.post("/v1/chat/completions", json=BODY | {"tools": 3})
    assert (refused.status_code, refused.json()) == (directly.status_code, directly.json())


async def test_it_is_under_the_limits_of_the_public_api(gateway):
    large = BODY | {"messages": [{"role": "user", "content": "x" * 30_000}]}
    assert (await gateway.admin.post("/mesh/chat", json=large)).status_code == 413


async def test_clients_have_no_playground(gateway):
    assert (await gateway.client.post("/mesh/chat", json=BODY)).status_code == 404


def test_the_operators_key_and_what_a_browser_adds_stay_behind():
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mesh/chat",
        "query_string": b"",
        "app": object(),
        "state": {"request_id": "r", "caller": "operator"},
        "headers": [
            (b"host", b"elsewhere:9000"),
            (b"authorization", b"Bearer operator"),
            (b"x-client-key", b"client"),
            (b"origin", b"http://elsewhere:9000"),
            (b"sec-fetch-site", b"same-origin"),
            (b"content-type", b"application/json"),
        ],
    }
    passed = forwarded(scope)
    assert dict(passed["headers"]) == {
        b"content-type": b"application/json",
        b"host": b"localhost",
        b"x-request-id": b"r",
        b"authorization": b"Bearer client",
    }
    assert (passed["path"], passed["state"], "app" in passed) == ("/v1/chat/completions", {}, False)
    scope["headers"] = [(b"authorization", b"Bearer operator")]
    assert b"authorization" not in dict(forwarded(scope)["headers"])
