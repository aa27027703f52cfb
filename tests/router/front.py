"""A gateway whose engines are servers: its router, its API, and a client."""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx
from prometheus_client import CollectorRegistry

from mesh.addresses import seats, supervisor_id
from mesh.clock import SystemClock
from mesh.directory import Endpoints
from mesh.sockets.sockets import Sockets
from mesh.topology.schema import (
    LOCAL_HOST,
    EngineSpec,
    GatewaySpec,
    PolicySpec,
    ServerSpec,
    ServiceSpec,
    Slo,
    Topology,
)
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from mesh.wire.frames import Sender
from mesh.wire.messages import GatewayMessage
from router.api.app import ApiConfig, create_apps
from router.api.forward.models import ForwardedModel
from router.api.http.browsers import BrowserRules
from router.api.http.callers import Callers, ClientPeers, OpenCallers
from router.api.metrics.gateway import GatewayMetrics
from router.api.openai.models import Models
from router.feed.broadcast import FeedBroadcast
from router.gateway import Router
from router.history.records import Record
from router.history.summary import record_of
from router.history.tallies import Tallies
from router.history.timelines import TimelineReaders, Timelines
from router.policies.in_force import PolicyInForce
from tests.router.feed_sources import sources_of
from tests.router.servers.nasty import NastyServer

DEADLINE_S = 60.0
CHAT = "chat"
TIMING = Timing(heartbeat_s=0.05, lease_s=60.0, reply_s=5.0, drain_s=5.0)
HELLO = [{"role": "user", "content": "Hello world"}]


def topology_of(servers, policy="least_loaded", ttft_s=30.0, roles=(), **settings) -> Topology:
    """``roles``: of the first servers; others do both. ``settings``: of each `ServerSpec`."""
    roles = [*roles, *[Role.MULTIPLEX] * len(servers)]
    spec = {"names": {CHAT: "m"}, "read_timeout_s": 30.0} | settings
    engines = [
        EngineSpec(f"s{index}", roles[index], (CHAT,), backend="openai", server=ServerSpec(server.url, **spec))
        for index, server in enumerate(servers)
    ]
    return Topology(
        name="front",
        path=Path("front.toml"),
        services=(ServiceSpec(CHAT, "", Slo(ttft_s, 1.0), aliases=("alias",)),),
        engines=tuple(engines),
        gateways=(GatewaySpec("gateway"),),
        policy=PolicySpec(policy),
        timing=TIMING,
    )


@dataclass
class Front:
    """What a test sees of it."""

    router: Router
    app: object
    client: httpx.AsyncClient
    records: list[Record] = field(default_factory=list)

    async def chat(self, path="/v1/chat/completions", **body) -> httpx.Response:
        return await self.client.post(path, json={"model": CHAT, "messages": HELLO} | body)

    async def stream(self, **body) -> tuple[str, list[dict[str, object]]]:
        """The text of an answer, and its events."""
        response = await self.chat(stream=True, **body)
        assert response.status_code == 200, response.text
        events = events_of(response.text)
        return "".join(said_in(one) for one in events), events

    async def until_serving(self, number):
        async with asyncio.timeout(DEADLINE_S):
            while len(self.router.view().serving(CHAT)) != number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def events_of(text):
    lines = [part for part in text.split("\n\n") if part]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def said_in(event):
    return "".join(choice.get("delta", choice).get("content") or "" for choice in event.get("choices", []))


@contextlib.asynccontextmanager
async def front_of(
    folder,
    *servers: NastyServer,
    callers: Callers | None = None,
    topology: Topology | None = None,
    tracer=None,
    clock=None,
    **settings,
):
    topology = topology_of(servers, **settings) if topology is None else topology
    ids = (*seats("gateway"), supervisor_id(LOCAL_HOST))
    endpoints = {id_: Endpoints(f"ipc://{folder}/{id_}.in", f"ipc://{folder}/{id_}.out") for id_ in ids}
    sockets: Sockets[GatewayMessage] = Sockets(Sender("gateway", 1), endpoints, GatewayMessage)
    sockets.bind()
    metrics, records, tallies = GatewayMetrics(CollectorRegistry()), [], Tallies()

    def ended(timeline, _):
        records.append(record_of(timeline))
        metrics.ended(records[-1], timeline.reason)

    traced = () if tracer is None else (tracer.ended,)
    timelines = Timelines(TimelineReaders((tallies.arrived,), (metrics.delivered,), (ended, *traced)))
    policy = PolicyInForce(topology.policy, Random(0), 0.0)
    router = Router(topology, "gateway", sockets, clock or SystemClock(), policy, timelines, tallies)
    app = create_apps(_config(router, topology, timelines, metrics, callers, tracer)).public
    running = asyncio.create_task(router.run())
    router.open("http://test", "http://admin.test")
    headers = {"content-type": "application/json"}
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://gateway", headers=headers, timeout=DEADLINE_S
    )
    front = Front(router, app, client, records)
    try:
        await front.until_serving(sum(not server.is_deaf for server in servers))
        yield front
    finally:
        await client.aclose()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await sockets.close()


def _config(router, topology, timelines, metrics, callers, tracer) -> ApiConfig:
    open_to_all = OpenCallers(ClientPeers())
    return ApiConfig(
        gateway="gateway",
        router=router,
        models=Models([], [ForwardedModel.of(service) for service in topology.services]),
        view=router.view,
        timelines=timelines,
        metrics=metrics,
        clock=SystemClock(),
        wall_clock=lambda: 1_700_000_000.0,
        max_body_bytes=1 << 20,
        callers=callers or open_to_all,
        operators=open_to_all,
        rules=BrowserRules(None),
        operator_rules=BrowserRules(None),
        registry=metrics.registry,
        broadcast=FeedBroadcast(sources_of(timelines), SystemClock()),
        has_page=False,
        calls=router.calls,
        tokenize=router.tokenize,
        tracer=tracer,
    )
