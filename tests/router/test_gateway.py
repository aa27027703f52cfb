"""The router over real sockets, against engines that follow a script."""

import asyncio
import time
from dataclasses import replace

import pytest

from mesh.sockets.sockets import Sockets
from mesh.wire.control import ProcessState, Stop
from mesh.wire.frames import Sender
from mesh.wire.requests import Cancel, Delta, Epoch, RefusalCode, Refused, StepTokens, Submit
from mesh.wire.status import ChildStatus, SupervisorStatus
from router import gateway as router_module
from router.generation import Draining, Overloaded, RequestFailed, RouterError
from router.live_generation import TOKEN_BYTES
from tests.router.cluster import M0, P0, SERVICE, make_spec
from tests.router.scripted_mesh import DEADLINE_S, STOP, SUPERVISOR, TIMING, Mesh, first, rest, spec, wait_until_serving


@pytest.fixture
async def mesh(tmp_path):
    async with Mesh(tmp_path, [M0]).running() as running:
        yield running


@pytest.fixture
async def pair(tmp_path):
    async with Mesh(tmp_path, [P0, M0]).running() as running:
        await wait_until_serving(running, 2)
        yield running


async def test_a_request_waits_for_an_engine_and_streams(mesh):
    generation = mesh.router.submit(spec())
    assert generation.route is None
    submit = await mesh.engines[M0].accept()
    mesh.engines[M0].say_tokens(submit, 10)
    assert (await first(generation)).tokens == (10,)
    assert generation.route.rule.startswith("3")
    assert mesh.router.status().num_requests == 1
    mesh.engines[M0].say_tokens(submit, 10, 11, 12, finish=STOP)
    assert await rest(generation) == [11, 12]
    assert generation.take() is None
    assert mesh.router.status().num_requests == 0
    assert mesh.router.timelines.of("r").ended.num_tokens == 3


async def test_a_hand_over_is_one_stream(pair):
    generation = pair.router.submit(spec())
    submit = await pair.engines[P0].accept()
    assert submit.decode_engine == M0
    pair.engines[P0].say_tokens(submit, 10)
    assert (await first(generation)).tokens == (10,)
    pair.engines[M0].say_tokens(submit, 10, 11, finish=STOP, hop=1)
    assert await rest(generation) == [11]
    assert (generation.route.prefill_engine, generation.route.decode_engine) == (P0, M0)


async def test_a_refused_request_is_sent_again(mesh):
    generation = mesh.router.submit(spec())
    submit = await mesh.engines[M0].receive(Submit)
    mesh.engines[M0].say(Refused("r", submit.epoch, RefusalCode.NO_SLACK, "busy"))
    again = await mesh.engines[M0].accept()
    assert again.epoch == Epoch(1)
    mesh.engines[M0].say_tokens(again, 10, finish=STOP)
    assert await rest(generation) == [10]
    assert generation.route.attempt == 1


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


async def test_a_death_that_a_supervisor_saw_is_not_waited_for(tmp_path):
    mesh = Mesh(tmp_path, [P0, M0])
    mesh.topology = replace(mesh.topology, timing=replace(TIMING, lease_s=3600.0, reply_s=3600.0))
    supervisor = Sockets(Sender(SUPERVISOR, 1), mesh.endpoints, Stop)
    supervisor.bind()
    async with mesh.running():
        await wait_until_serving(mesh, 2)
        generation = mesh.router.submit(spec())
        submit = await mesh.engines[P0].accept()
        mesh.engines[P0].say_tokens(submit, 10)
        assert (await first(generation)).tokens == (10,)
        for incarnation in (0, 1):
            await asyncio.sleep(TIMING.heartbeat_s)
            assert mesh.router.status().num_requests == 1
            child = ChildStatus(P0, "engine", None, "restarting", 0, None, incarnation)
            supervisor.publish(SupervisorStatus(1, "local", 1, [child]))
        again = await mesh.engines[M0].accept()
        assert again.spec.generated == [10]
        mesh.engines[M0].say_tokens(again, 11, finish=STOP)
        assert await rest(generation) == [11]
        assert len(mesh.router.view().serving(SERVICE)) == 1, "what it still says is of an incarnation that is over"
    await supervisor.close()


async def test_cancelling_stops_the_engine(mesh):
    generation = mesh.router.submit(spec())
    await mesh.engines[M0].accept()
    generation.cancel()
    generation.cancel()
    assert (await mesh.engines[M0].receive(Cancel)).request == "r"
    assert generation.take() is None
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
    monkeypatch.setattr(router_module, "MAX_PENDING_BYTES", 100 * TOKEN_BYTES)
    generation = mesh.router.submit(spec())
    submit = await mesh.engines[M0].accept()
    mesh.engines[M0].say_tokens(submit, *range(101))
    await mesh.engines[M0].receive(Cancel)
    with pytest.raises(RequestFailed, match="cut off: 6464 bytes"):
        await rest(generation)


async def test_a_full_inbox_starves_no_consumer(mesh, monkeypatch):
    monkeypatch.setattr(router_module, "MAX_PENDING_BYTES", 100 * TOKEN_BYTES)
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
    assert generation.route.attempt == 0


async def test_a_gateway_that_is_held_up_while_it_catches_up_blames_no_engine(mesh, monkeypatch):
    generation = mesh.router.submit(spec())
    submit = await mesh.engines[M0].accept()
    engine, loop = mesh.engines[M0], asyncio.get_running_loop()
    with monkeypatch.context() as silence:  # the engine is held up as well, and takes a moment to say that it lives
        silence.setattr(engine, "publish", lambda: None)
        time.sleep(2 * TIMING.lease_s)  # noqa: ASYNC251
        loop.call_later(0.01, time.sleep, 2 * TIMING.lease_s)
        await asyncio.sleep(0.02)
        await asyncio.sleep(0.01)
    engine.publish()
    await asyncio.sleep(TIMING.heartbeat_s)
    engine.say_tokens(submit, 10, finish=STOP)
    assert await rest(generation) == [10]
    assert generation.route.attempt == 0


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
