"""Calls to servers have traces as others have, and hand them on."""

import pytest
from prometheus_client import CollectorRegistry

from mesh.clock import SystemClock
from mesh.topology.schema import TracesSpec
from router.traces import exporter as exporting
from router.traces.tracing import tracing
from tests.router.front import CHAT, HELLO, front_of
from tests.router.servers.nasty import answer, serving
from tests.router.traces.receiver import attributes, receiving

pytest.importorskip("opentelemetry.proto.trace")


async def test_a_call_to_a_server_is_traced_and_told_its_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "FLUSH_S", 0.02)
    with receiving() as receiver:
        spec = TracesSpec(receiver.url, sample=1.0)
        with tracing(spec, {"service.instance.id": "gateway-0"}, CollectorRegistry(), SystemClock()) as tracer:
            async with serving(answer) as [server], front_of(tmp_path, server, tracer=tracer) as front:
                response = await front.chat(max_tokens=2)
        receiver.wait(1)
        [root, *_] = receiver.spans
    assert response.status_code == 200
    assert server.asked[0].headers["traceparent"] == response.headers["traceparent"]
    told = attributes(root)
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", "chat")
    assert told["gen_ai.response.id"] == response.json()["id"]


PATH, BODY = "/v1/chat/completions", {"model": CHAT, "messages": HELLO, "max_tokens": 2}
CLIENTS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_gateway_that_makes_no_traces_hands_on_the_clients(tmp_path):
    async with serving(answer) as [server], front_of(tmp_path, server) as front:
        await front.client.post(PATH, json=BODY, headers={"traceparent": CLIENTS, "tracestate": "a=b"})
    assert (server.asked[0].headers["traceparent"], server.asked[0].headers["tracestate"]) == (CLIENTS, "a=b")


async def test_a_server_is_told_one_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "FLUSH_S", 0.02)
    with receiving() as receiver:
        spec = TracesSpec(receiver.url, sample=1.0)
        with tracing(spec, {"service.instance.id": "gateway-0"}, CollectorRegistry(), SystemClock()) as tracer:
            async with serving(answer) as [server], front_of(tmp_path, server, tracer=tracer) as front:
                response = await front.client.post(PATH, json=BODY, headers={"traceparent": CLIENTS})
    asked = server.asked[0].headers["traceparent"]
    assert asked == response.headers["traceparent"] != CLIENTS
    assert asked.split("-")[1] == CLIENTS.split("-")[1]
