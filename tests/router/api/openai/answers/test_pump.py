"""What comes of a call's choices reaches its sink at once, and in order however slow the client is."""

import asyncio

import pytest

from mesh.clock import SystemClock
from mesh.wire.requests import FinishReason
from router.api.errors import ClientGoneError
from router.api.openai.answers.choice import Piece
from router.api.openai.answers.pump import Pump
from router.generation import Fault, RequestFailed, TokenBatch
from router.history.timelines import Timelines
from router.live_generation import LiveGeneration
from tests.router.cluster import make_spec


class Told:
    """A choice that says its tokens."""

    def __init__(self, index, generation):
        self.index, self.generation, self.finish = index, generation, None

    def feed(self, batch):
        self.finish = batch.finish
        return Piece(" ".join(map(str, batch.tokens)), batch.finish, ())


class SlowSink:
    """Takes pieces while its door is open."""

    def __init__(self):
        self.taken, self.door = [], asyncio.Event()
        self.door.set()

    async def take(self, choice, piece, *, more):
        await self._passed()
        self.taken.append((choice.index, piece.text, more))

    async def _passed(self):
        if not self.door.is_set():
            await self.door.wait()


def batch(token, finish=None):
    return TokenBatch((token,), finish, 0, None, None)


@pytest.fixture
def sink():
    return SlowSink()


@pytest.fixture
def generations():
    timelines = Timelines()
    made = [timelines.arrived(make_spec(name), SystemClock().now()) for name in ("a", "b")]
    return [LiveGeneration(timeline, lambda _: None, lambda _: None) for timeline in made]


@pytest.fixture
def run(sink, generations):
    async def running(gone):
        choices = [Told(index, generation) for index, generation in enumerate(generations)]
        await Pump(choices, sink).run(gone.wait())

    return running


async def settle():
    for _ in range(4):
        await asyncio.sleep(0)


async def test_pieces_of_all_choices_come_in_their_orders(run, sink, generations):
    first, second = generations
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(run(asyncio.Event()))
        await settle()
        first.put(batch(1))
        first.put(batch(2))
        second.put(batch(8, FinishReason.STOP))
        await settle()
        assert sink.taken == [(0, "1", True), (0, "2", False), (1, "8", False)]
        first.put(batch(3, FinishReason.STOP))
    assert sink.taken[3:] == [(0, "3", True)]


async def test_a_slow_client_gets_what_came_meanwhile(run, sink, generations):
    first, second = generations
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(run(asyncio.Event()))
        await settle()
        sink.door.clear()
        for token in (1, 2, 3):
            first.put(batch(token))
            await settle()
        assert sink.taken == []
        assert first.pending_bytes > 0, "what is not taken counts for the bound of its request"
        sink.door.set()
        await settle()
        assert [text for _, text, _ in sink.taken] == ["1", "2", "3"]
        for generation in (first, second):
            generation.put(batch(9, FinishReason.STOP))


async def test_a_client_that_goes_ends_what_it_held_up(run, sink, generations):
    gone = asyncio.Event()
    running = asyncio.create_task(run(gone))
    await settle()
    sink.door.clear()
    generations[0].put(batch(1))
    await settle()
    gone.set()
    with pytest.raises(ClientGoneError):
        await running
    assert len(asyncio.all_tasks()) == 1


async def test_the_first_failure_ends_all_choices_after_what_came(run, sink, generations):
    running = asyncio.create_task(run(asyncio.Event()))
    await settle()
    generations[0].put(batch(1))
    generations[0].fail(RequestFailed("engines failed", Fault.SERVER))
    with pytest.raises(RequestFailed):
        await running
    assert sink.taken == [(0, "1", False)]


async def test_each_piece_has_its_time_to_leave(run, sink, generations, monkeypatch):
    monkeypatch.setattr("router.api.openai.answers.pump.HELD_UP_S", 0.2)
    running = asyncio.create_task(run(asyncio.Event()))
    await settle()
    for token in (1, 2, 3):
        sink.door.clear()
        generations[0].put(batch(token))
        await asyncio.sleep(0.1)
        sink.door.set()
        await settle()
    assert [text for _, text, _ in sink.taken] == ["1", "2", "3"]
    sink.door.clear()
    generations[0].put(batch(4))
    with pytest.raises(ClientGoneError):
        await running
    assert len(sink.taken) == 3
