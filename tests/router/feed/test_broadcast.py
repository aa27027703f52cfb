"""One feed, many readers."""

import asyncio
from contextlib import aclosing

import pytest

from router.feed.broadcast import KEEPALIVE, MOST_READERS, MOST_UNREAD, FeedBroadcast
from router.history.timelines import Timelines
from tests.router.cluster import make_spec
from tests.router.feed_sources import sources_of


class StandingClock:
    def now(self):
        return 1.0


@pytest.fixture
def timelines():
    return Timelines()


@pytest.fixture
async def broadcast(timelines):
    made = FeedBroadcast(sources_of(timelines), StandingClock())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        yield made
        running.cancel()


async def test_what_happens_reaches_all_readers(broadcast, timelines):
    async with aclosing(broadcast.read()) as one, aclosing(broadcast.read()) as other:
        assert b"event: hello" in await anext(one)
        assert b"event: hello" in await anext(other)
        timelines.arrived(make_spec("r"), 1.0)
        for reader in (one, other):
            assert b'"what":"arrived"' in await anext(reader)


async def test_a_newcomer_hears_nothing_twice(broadcast, timelines):
    async with aclosing(broadcast.read()) as one:
        await anext(one)
        timelines.arrived(make_spec("r"), 1.0)
        async with aclosing(broadcast.read()) as other:
            assert (await anext(other)).count(b'"what":"arrived"') == 1
            assert (await anext(one)).count(b'"what":"arrived"') == 1
            timelines.arrived(make_spec("s"), 1.0)
            assert (await anext(other)).count(b'"what":"arrived"') == 1


async def test_nothing_is_composed_while_nobody_reads(broadcast):
    async with aclosing(broadcast.read()) as one:
        await anext(one)
        assert broadcast.num_readers == 1
    assert broadcast.num_readers == 0
    assert broadcast._feed is None


async def test_who_does_not_read_is_cut_off_and_the_others_are_not(timelines):
    broadcast = FeedBroadcast(sources_of(timelines), StandingClock())
    async with aclosing(broadcast.read()) as slow, aclosing(broadcast.read()) as quick:
        await anext(slow)
        await anext(quick)
        for number in range(MOST_UNREAD + 10):
            timelines.arrived(make_spec(f"{number}"), 1.0)
            broadcast._tick()
            await anext(quick)
        pieces = [piece async for piece in slow]
        assert len(pieces) == MOST_UNREAD + 1
        assert pieces[-1].startswith(b"event: bye")
        assert broadcast.num_readers == 1


async def test_readers_are_sent_away_when_the_gateway_leaves(broadcast):
    async with aclosing(broadcast.read()) as one:
        await anext(one)
        broadcast.end()
        (bye,) = [piece async for piece in one]
        assert bye.startswith(b"event: bye")
    last = [piece async for piece in broadcast.read()][-1]
    assert last.startswith(b"event: bye")


async def test_only_so_many_may_read(broadcast):
    readers = [broadcast.read() for _ in range(MOST_READERS)]
    for reader in readers:
        assert not broadcast.is_full
        await anext(reader)
    assert broadcast.is_full
    for reader in readers:
        await reader.aclose()


async def test_a_quiet_feed_says_that_it_is_there(broadcast, monkeypatch):
    monkeypatch.setattr("router.feed.broadcast.KEEPALIVE_S", 0.01)
    async with aclosing(broadcast.read()) as one:
        await anext(one)
        assert await anext(one) == KEEPALIVE
