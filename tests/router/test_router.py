"""The router over real sockets, against engines that follow a script."""

import asyncio
import contextlib
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from mesh.addresses import Endpoints
from mesh.clock import SystemClock
from mesh.messages import (
    Accepted,
    Cancel,
    Delta,
    EngineMessage,
    Epoch,
    FinishReason,
    GatewayMessage,
    GatewayStatus,
    ProcessState,
    RefusalCode,
    Refused,
    Sender,
    StepTokens,
    Submit,
)
from mesh.sockets import Sockets
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Timing, Topology
from router import router as router_module
from router.generation import Draining, Overloaded, RequestFailed, RouterError
from router.policies.registry import make_policy
from router.router import Router
from tests.router.cluster import M0, P0, ROLES, SERVICE, make_spec, make_status

DEADLINE_S = 20.0
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
    def __init__(self, folder, engines, **gateway) -> None:
        ids = ("gateway", *engines)
        self.endpoints = {id_: Endpoints(f"ipc://{folder}/{id_}.in", f"ipc://{folder}/{id_}.out") for id_ in ids}
        self.topology = Topology(
            name="test",
            path=Path("test.toml"),
            services=(ServiceSpec(SERVICE, "model", Slo(1.0, 0.1)),),
            engines=tuple(EngineSpec(id_, ROLES[id_.partition("-")[0]], (SERVICE,)) for id_ in engines),
            gateways=(replace(GatewaySpec("gateway"), **gateway),),
            timing=TIMING,
        )
        self._alive: dict[str, asyncio.Task[None]] = {}
        self.engines: dict[str, ScriptedEngine] = {}

    @contextlib.asynccontextmanager
    async def running(self):
        sockets: Sockets[GatewayMessage] = Sockets(Sender("gateway", 1), self.endpoints, GatewayMessage)
        sockets.bind()
        policy = make_policy(PolicySpec(), Random(0))
        self.router = Router(self.topology, "gateway", sockets, SystemClock(), policy)
        self._alive["gateway"] = asyncio.create_task(self.router.run())
        for engine in self.topology.engines:
            self.start(engine.id)
        self.router.open("http://test")
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


@pytest.fixture
async def mesh(tmp_path):
    async with Mesh(tmp_path, [M0]).running() as running:
        yield running


@pytest.fixture
async def pair(tmp_path):
    async with Mesh(tmp_path, [P0, M0]).running() as running:
        await wait_until_serving(running, 2)
        yield running


async def wait_until_serving(mesh, num_engines):
    async with asyncio.timeout(DEADLINE_S):
        while len(mesh.router.view().serving(SERVICE)) < num_engines:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def spec(id_="r", **fields):
    return make_spec(id_, slo_ttft_s=DEADLINE_S, **fields)


async def first(generation):
    async with asyncio.timeout(DEADLINE_S):
        return await anext(aiter(generation))


async def rest(generation):
    async with asyncio.timeout(DEADLINE_S):
        return [token async for batch in generation for token in batch.tokens]


async def test_a_request_waits_for_an_engine_and_streams(mesh):
    generation = mesh.router.submit(spec())
    assert generation.placement is None
    submit = await mesh.engines[M0].accept()
    mesh.engines[M0].say_tokens(submit, 10)
    assert (await first(generation)).tokens == (10,)
    assert generation.placement.rule.startswith("3")
    assert mesh.router.status().num_requests == 1
    mesh.engines[M0].say_tokens(submit, 10, 11, 12, finish=STOP)
    assert await rest(generation) == [11, 12]
    assert await rest(generation) == []
    assert mesh.router.status().num_requests == 0
    assert [record.request for record in mesh.router.explain("r")][-1:] == ["r"]


async def test_a_hand_over_is_one_stream(pair):
    generation = pair.router.submit(spec())
    submit = await pair.engines[P0].accept()
    assert submit.decode_engine == M0
    pair.engines[P0].say_tokens(submit, 10)
    assert (await first(generation)).tokens == (10,)
    pair.engines[M0].say_tokens(submit, 10, 11, finish=STOP, hop=1)
    assert await rest(generation) == [11]
    assert (generation.placement.prefill_engine, generation.placement.decode_engine) == (P0, M0)


async def test_a_refused_request_is_sent_again(mesh):
    generation = mesh.router.submit(spec())
    submit = await mesh.engines[M0].receive(Submit)
    mesh.engines[M0].say(Refused("r", submit.epoch, RefusalCode.NO_SLACK, "busy"))
    again = await mesh.engines[M0].accept()
    assert again.epoch == Epoch(1)
    mesh.engines[M0].say_tokens(again, 10, finish=STOP)
    assert await rest(generation) == [10]
    assert generation.placement.attempt == 1


async def test_an_engine_that_dies_is_survived_without_a_break_in_the_stream(mesh):
    generation = mesh.router.submit(spec())
    submit = await mesh.engines[M0].accept()
    mesh.engines[M0].say_tokens(submit, 10, 11)
    assert (await first(generation)).tokens == (10, 11)
    await mesh.kill(M0)
    engine = mesh.start(M0, incarnation=2)
    again = await engine.accept()
    assert again.spec.generated == [10, 11]
    engine.say_tokens(again, 12, finish=STOP)
    assert await rest(generation) == [12]


async def test_cancelling_stops_the_engine(mesh):
    generation = mesh.router.submit(spec())
    await mesh.engines[M0].accept()
    generation.cancel()
    generation.cancel()
    assert (await mesh.engines[M0].receive(Cancel)).request == "r"
    assert await rest(generation) == []
    assert mesh.router.status().num_requests == 0


async def test_a_request_that_no_engine_takes_in_time_is_rejected(tmp_path):
    async with Mesh(tmp_path, [P0]).running() as mesh:
        await wait_until_serving(mesh, 1)
        engine = mesh.engines[P0]
        for id_ in ("running", "queued"):
            mesh.router.submit(spec(id_))
            await engine.receive(Submit)
        with pytest.raises(Overloaded):
            await rest(mesh.router.submit(make_spec("r", slo_ttft_s=0.05)))


async def test_a_consumer_that_does_not_read_is_cut_off(mesh, monkeypatch):
    monkeypatch.setattr(router_module, "MAX_PENDING_TOKENS", 100)
    generation = mesh.router.submit(spec())
    submit = await mesh.engines[M0].accept()
    mesh.engines[M0].say_tokens(submit, *range(101))
    await mesh.engines[M0].receive(Cancel)
    with pytest.raises(RequestFailed, match="101 tokens"):
        await rest(generation)


async def test_a_full_inbox_starves_no_consumer(mesh, monkeypatch):
    monkeypatch.setattr(router_module, "MAX_PENDING_TOKENS", 100)
    generation = mesh.router.submit(spec())
    submit = await mesh.engines[M0].accept()
    for offset in range(3000):
        finish = STOP if offset == 2999 else None
        mesh.engines[M0].say(StepTokens([Delta("r", submit.epoch, offset, [offset], finish)]))
    assert await rest(generation) == list(range(3000))


async def test_a_gateway_that_was_held_up_blames_no_engine(mesh):
    generation = mesh.router.submit(spec())
    submit = await mesh.engines[M0].accept()
    time.sleep(2 * TIMING.lease_s)  # noqa: ASYNC251
    await asyncio.sleep(TIMING.heartbeat_s)
    mesh.engines[M0].say_tokens(submit, 10, finish=STOP)
    assert await rest(generation) == [10]
    assert generation.placement.attempt == 0


async def test_bounds_reach_the_caller(tmp_path):
    async with Mesh(tmp_path, [M0], max_requests=1).running() as mesh:
        mesh.router.submit(spec("a"))
        with pytest.raises(Overloaded):
            mesh.router.submit(spec("b"))


async def test_draining_takes_nothing_new_and_finishes_the_rest(mesh):
    generation = mesh.router.submit(spec())
    submit = await mesh.engines[M0].accept()
    draining = asyncio.create_task(mesh.router.drain())
    async with asyncio.timeout(DEADLINE_S):
        while await mesh.engines[M0].gateway_states.get() is not ProcessState.DRAINING:
            pass
    with pytest.raises(Draining):
        mesh.router.submit(spec("late"))
    assert not draining.done()
    mesh.engines[M0].say_tokens(submit, 10, finish=STOP)
    assert await rest(generation) == [10]
    async with asyncio.timeout(DEADLINE_S):
        await draining


async def test_draining_does_not_wait_for_ever(tmp_path):
    mesh = Mesh(tmp_path, [M0])
    mesh.topology = replace(mesh.topology, timing=replace(TIMING, drain_s=0.05))
    async with mesh.running():
        generation = mesh.router.submit(spec())
        await mesh.engines[M0].accept()
        async with asyncio.timeout(DEADLINE_S):
            await mesh.router.drain()
        with pytest.raises(RouterError, match="shut down"):
            await rest(generation)
        await mesh.engines[M0].receive(Cancel)


async def test_engines_see_the_gateway(mesh):
    async with asyncio.timeout(DEADLINE_S):
        while await mesh.engines[M0].gateway_states.get() is not ProcessState.READY:
            pass
    assert mesh.router.status().url == "http://test"
