"""A gateway's router over real sockets, and engines that follow a script."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from random import Random

from mesh.addresses import seats, supervisor_id
from mesh.clock import SystemClock
from mesh.directory import Endpoints
from mesh.sockets.sockets import Sockets
from mesh.topology.schema import LOCAL_HOST, EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.topology.timing import Timing
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineMessage, GatewayMessage
from mesh.wire.requests import Accepted, Delta, Epoch, FinishReason, StepTokens, Submit
from mesh.wire.status import GatewayStatus
from router.gateway import Router
from router.generation import next_batch
from router.history.records import Record
from router.history.summary import record_of
from router.history.tallies import Tallies
from router.history.timelines import TimelineReaders, Timelines
from router.policies.in_force import PolicyInForce
from tests.router.cluster import ROLES, SERVICE, make_spec, make_status

DEADLINE_S = 60.0
SUPERVISOR = supervisor_id(LOCAL_HOST)
STOP = FinishReason.STOP
TIMING = Timing(heartbeat_s=0.1, lease_s=0.5, reply_s=0.3, drain_s=5.0)


class ScriptedEngine:
    """Says what a test tells it to say, on real sockets."""

    def __init__(self, id_, endpoints, incarnation=1) -> None:
        self.id = id_
        self.sockets: Sockets[EngineMessage] = Sockets(Sender(id_, incarnation), endpoints, EngineMessage)
        self.sockets.bind()
        self.sockets.subscribe(["gateway"])
        self.inbox: asyncio.Queue[EngineMessage] = asyncio.Queue()
        self.gateway_states: asyncio.Queue[ProcessState] = asyncio.Queue()
        self._seq = 0

    async def run(self):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._listen())
            tasks.create_task(self._beat())
            tasks.create_task(self._welcome())

    async def _read(self):
        async for received in self.sockets.messages():
            self.inbox.put_nowait(received.message)

    async def _listen(self):
        async for _, status in self.sockets.broadcasts():
            if isinstance(status, GatewayStatus):
                self.gateway_states.put_nowait(status.state)

    async def _beat(self):
        while True:
            self.publish()
            await asyncio.sleep(TIMING.heartbeat_s)

    async def _welcome(self):
        async for _ in self.sockets.subscribers():
            self.publish()

    def publish(self):
        self._seq += 1
        self.sockets.publish(make_status(self.id, self._seq))

    def say(self, message):
        assert self.sockets.send("gateway", message)

    def say_tokens(self, submit, *tokens, finish=None, hop=0):
        epoch = Epoch(submit.epoch.attempt, hop)
        self.say(StepTokens([Delta(submit.spec.id, epoch, len(submit.spec.generated), list(tokens), finish)]))

    async def receive(self, kind):
        async with asyncio.timeout(DEADLINE_S):
            while not isinstance(message := await self.inbox.get(), kind):
                pass
            return message

    async def accept(self) -> Submit:
        submit = await self.receive(Submit)
        self.say(Accepted(submit.spec.id, submit.epoch, self._seq + 1))
        return submit


class Mesh:
    """``records`` are those of the requests that ended."""

    def __init__(self, folder, engines, **gateway) -> None:
        ids = (*seats("gateway"), SUPERVISOR, *engines)
        self.endpoints = {id_: Endpoints(f"ipc://{folder}/{id_}.in", f"ipc://{folder}/{id_}.out") for id_ in ids}
        self.topology = Topology(
            name="test",
            path=Path("test.toml"),
            services=(ServiceSpec(SERVICE, "model", Slo(1.0, 0.1)),),
            engines=tuple(EngineSpec(id_, ROLES[id_.partition("-")[0]], (SERVICE,)) for id_ in engines),
            gateways=(replace(GatewaySpec("gateway"), **gateway),),
            timing=TIMING,
        )
        self.records: list[Record] = []
        self.timelines = Timelines(TimelineReaders(ended=(self._ended,)))
        self._alive: dict[str, asyncio.Task[None]] = {}
        self.engines: dict[str, ScriptedEngine] = {}

    def wrapped(self, core):
        """What the router calls as its core: a test may listen."""
        return core

    def _ended(self, timeline, _):
        self.records.append(record_of(timeline))

    @contextlib.asynccontextmanager
    async def running(self):
        sockets: Sockets[GatewayMessage] = Sockets(Sender("gateway", 1), self.endpoints, GatewayMessage)
        sockets.bind()
        policy = PolicyInForce(PolicySpec(), Random(0), 0.0)
        self.router = Router(self.topology, "gateway", sockets, SystemClock(), policy, self.timelines, Tallies())
        self.router._core = self.wrapped(self.router._core)
        self._alive["gateway"] = asyncio.create_task(self.router.run())
        for engine in self.topology.engines:
            self.start(engine.id)
        self.router.open("http://test", "http://admin.test")
        try:
            yield self
        finally:
            for id_ in list(self.engines):
                await self.kill(id_)
            await self._end("gateway")
            await sockets.close()

    def start(self, id_, incarnation=1):
        engine = self.engines[id_] = ScriptedEngine(id_, self.endpoints, incarnation)
        self._alive[id_] = asyncio.create_task(engine.run())
        return engine

    async def kill(self, id_):
        await self._end(id_)
        await self.engines.pop(id_).sockets.close()

    async def _end(self, id_):
        task = self._alive.pop(id_)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def wait_until_serving(mesh, num_engines):
    async with asyncio.timeout(DEADLINE_S):
        while len(mesh.router.view().serving(SERVICE)) < num_engines:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def spec(id_="r", **fields):
    return make_spec(id_, slo_ttft_s=DEADLINE_S, **fields)


async def first(generation):
    async with asyncio.timeout(DEADLINE_S):
        return await next_batch(generation)


async def rest(generation):
    async with asyncio.timeout(DEADLINE_S):
        tokens = list[int]()
        while True:
            batch = await next_batch(generation)
            tokens += batch.tokens
            if batch.finish is not None:
                return tokens
