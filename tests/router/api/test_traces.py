"""Calls of the API as a collector sees them: OpenTelemetry's own messages read what comes over HTTP."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from mesh.clock import SystemClock
from mesh.topology.schema import TracesSpec
from router.api.metrics.gateway import GatewayMetrics
from router.api.openai.models import ServedModel
from router.generation import Fault, Overloaded, RequestFailed
from router.traces import exporter as exporting
from router.traces.tracing import tracing
from tests.router.api.conftest import ScriptedRouter, apis_of, client_of, engine, gateway_of, one_by_one
from tests.router.traces.receiver import Receiver, attributes, receiving

pytest.importorskip("opentelemetry.proto.trace")

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BODY: dict[str, Any] = {"model": "tiny-alias", "messages": [{"role": "user", "content": "Hello world"}]}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(exporting, "FLUSH_S", 0.02)
    with receiving() as made:
        yield made


@dataclass
class Traced:
    """A gateway without engines that exports to ``receiver``."""

    router: ScriptedRouter
    client: httpx.AsyncClient
    admin: httpx.AsyncClient
    receiver: Receiver
    registry: CollectorRegistry

    async def chat(self, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json=BODY | body, headers=headers or {})

    async def spans(self, num_requests: int = 1) -> list[Any]:
        self.receiver.wait(num_requests)
        return self.receiver.spans


@pytest.fixture
async def gateway(model: ServedModel, receiver: Receiver) -> AsyncIterator[Traced]:
    metrics, spec = GatewayMetrics(CollectorRegistry()), TracesSpec(receiver.url, sample=0.0)
    with tracing(spec, {"service.instance.id": "gateway-0"}, metrics.registry, SystemClock()) as tracer:
        router = ScriptedRouter(lambda _: one_by_one([10, 11]), metrics, tracer=tracer)
        apps = apis_of(model, router, 20_000, {"decode-0": engine()}, router.timelines)
        async with client_of(apps.public) as client, client_of(apps.admin) as admin:
            yield Traced(router, client, admin, receiver, metrics.registry)


async def test_a_call_goes_on_with_the_trace_of_its_client(gateway: Traced):
    answer = await gateway.chat({"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=1", "x-request-id": "mine"})
    assert answer.status_code == 200
    spans = await gateway.spans()
    server = spans[0]
    assert answer.headers["traceparent"] == f"00-{TRACE}-{server.span_id.hex()}-01"
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert (server.parent_span_id.hex(), server.trace_state, server.flags & 0x300) == (SPAN, "a=1", 0x300)
    assert [span.name for span in spans] == ["chat tiny-alias", "read", "queue", "prefill", "decode"]
    told = attributes(server)
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", "tiny-alias")
    assert (told["gen_ai.response.model"], told["gen_ai.response.id"]) == ("tiny", answer.json()["id"])
    usage = answer.json()["usage"]
    assert told["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == usage["completion_tokens"] == 2
    assert told["gen_ai.response.finish_reasons"] == ["length"]
    assert (told["meshserve.request.id"], told["meshserve.kept_for"]) == ("mine", "parent")
    assert all(server.start_time_unix_nano <= s.start_time_unix_nano <= s.end_time_unix_nano for s in spans)
    resource = gateway.receiver.resource
    assert (resource["service.name"], resource["service.instance.id"]) == ("meshserve", "gateway-0")
    path, headers, _ = gateway.receiver.requests[0]
    assert (path, headers["content-type"]) == ("/v1/traces", "application/x-protobuf")


@pytest.mark.parametrize("headers", [{}, {"traceparent": "nonsense"}, {"traceparent": f"00-{TRACE}-{SPAN}-00"}])
async def test_what_was_rejected_is_sampled_and_what_kept_its_promises_is_not(gateway: Traced, headers: dict[str, str]):
    answer = await gateway.chat(headers)
    assert answer.headers["traceparent"].endswith("-00")
    gateway.router.refusal = Overloaded("full", 1.0)
    assert (await gateway.chat({"x-request-id": "refused"})).status_code == 429
    spans = await gateway.spans()
    assert attributes(spans[0])["meshserve.request.id"] == "refused"
    assert attributes(spans[0])["error.type"] == "rejected"


async def test_what_failed_is_told_with_its_reason(gateway: Traced, logged: list[MutableMapping[str, Any]]):
    gateway.router.script = lambda _: [RequestFailed("given up", Fault.SERVER)]
    answer = await gateway.chat()
    assert answer.status_code == 500
    trace_id = answer.headers["traceparent"].split("-")[1]
    assert [entry["trace"] for entry in logged if entry["event"] == "not answered"] == [trace_id]


async def test_all_choices_of_a_call_are_one_trace(gateway: Traced):
    answer = await gateway.chat({"traceparent": f"00-{TRACE}-{SPAN}-01"}, n=2)
    assert len(answer.json()["choices"]) == 2
    spans = await gateway.spans()
    assert [span.name for span in spans if span.parent_span_id == spans[0].span_id] == ["choice 0", "choice 1"]


async def test_explanations_name_the_trace(gateway: Traced):
    answer = await gateway.chat()
    story = (await gateway.admin.get(f"/mesh/requests/{answer.json()['id']}")).json()
    assert story["requests"][0]["trace_id"] == answer.headers["traceparent"].split("-")[1]


async def test_what_became_of_traces_is_counted(gateway: Traced):
    gateway.receiver.statuses = [400]
    for number in range(2):
        await gateway.chat({"traceparent": f"00-{TRACE}-{SPAN}-01"})
        await gateway.spans(number + 1)
    metrics = generate_latest(gateway.registry).decode()
    assert 'meshserve_traces_dropped_total{reason="refused"} 1.0' in metrics
    assert "meshserve_spans_exported_total" in metrics


async def test_no_trace_without_a_tracer(model: ServedModel):
    async with gateway_of(model, max_body_bytes=20_000) as plain:
        assert "traceparent" not in (await plain.chat()).headers


def test_a_gateway_without_traces_loads_nothing_that_writes_or_sends_them():
    """FastAPI loads OpenTelemetry's API where it finds it; no gateway needs it."""
    wanted = "opentelemetry.proto", "router.traces.otlp", "router.traces.exporter", "router.traces.collector"
    code = f"import sys, router.process; print([name for name in sys.modules if name.startswith({wanted})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
