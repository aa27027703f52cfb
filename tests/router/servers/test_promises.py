"""Promises, priorities and fairness hold in front of servers as in front of the mesh's own engines."""

import asyncio
import contextlib
from dataclasses import replace

from engines.costs.linear import prefill_s
from mesh.clock import SystemClock
from router.api.http.callers import Caller
from tests.router.front import CHAT, DEADLINE_S, HELLO, front_of, topology_of
from tests.router.servers.nasty import answer, serving


class OneAtATime:
    """A server that answers one request after the other, and the next one when a test says so."""

    def __init__(self):
        self.turns = asyncio.Semaphore(0)
        self.asked: list[str] = []  # by whom, in the order in which they came

    async def __call__(self, asked, writer):
        self.asked.append(asked.body["user"])
        await self.turns.acquire()
        await answer(asked, writer)


class ByTenant:
    """Callers are whom a header names."""

    def admit(self, scope, headers):
        return Caller("peer", headers.get("x-tenant", "nobody"))


def ask(front, user, headers=None):
    body = {"model": CHAT, "messages": HELLO, "user": user, "max_tokens": 1, "stream": True}
    return asyncio.create_task(front.client.post("/v1/chat/completions", json=body, headers=headers or {}))


async def until(is_true):
    async with asyncio.timeout(DEADLINE_S):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def until_asked(server, number):
    await until(lambda: len(server.asked) >= number)


class LeapingClock(SystemClock):
    """The real time, and what a test lets pass at once: how long this machine takes for a step is little beside it."""

    def __init__(self):
        self.leapt_s = 0.0

    def now(self):
        return super().now() + self.leapt_s


@contextlib.asynccontextmanager
async def one_by_one(folder, policy, callers=None, max_priority=0, ttft_s=30.0, clock=None):
    """A gateway that keeps requests until its only server has room for the next prompt."""
    server = OneAtATime()
    async with serving(server) as servers:
        topology = topology_of(servers, policy=policy, ttft_s=ttft_s)
        [service] = topology.services
        topology = replace(topology, services=(replace(service, max_priority=max_priority),))
        async with front_of(folder, *servers, topology=topology, callers=callers, clock=clock) as front:
            yield front, server


async def all_of(front, server, asked):
    """Let the server answer them, one after the other, and return who came in which order."""
    for number in range(len(asked)):
        await until_asked(server, number + 1)
        server.turns.release()
    assert {response.status_code for response in await asyncio.gather(*asked)} == {200}
    return server.asked


async def test_a_higher_priority_is_served_first(tmp_path):
    async with one_by_one(tmp_path, "elastic", max_priority=5) as (front, server):
        asked = [ask(front, f"low{number}") for number in range(8)]
        await until(lambda: front.router.status().num_requests == 8 and server.asked)
        sent_before = len(server.asked)
        asked.append(ask(front, "high", {"x-priority": "5"}))
        await until(lambda: front.router.status().num_requests == 9)
        order = await all_of(front, server, asked)
    assert sent_before < 4, "most wait in the gateway"
    assert order.index("high") <= sent_before + 1


async def test_who_asks_for_much_does_not_keep_others_from_their_turn(tmp_path):
    async with one_by_one(tmp_path, "elastic", ByTenant()) as (front, server):
        asked = [ask(front, f"much{number}", {"x-tenant": "much"}) for number in range(8)]
        await until(lambda: front.router.status().num_requests == 8 and server.asked)
        sent_before = len(server.asked)
        asked += [ask(front, f"little{number}", {"x-tenant": "little"}) for number in range(2)]
        await until(lambda: front.router.status().num_requests == 10)
        order = await all_of(front, server, asked)
    assert max(order.index("little0"), order.index("little1")) <= sent_before + 4


async def test_what_cannot_be_in_time_is_refused_with_the_time_to_try_again(tmp_path):
    """A server computes prompts in the order in which they come: a tighter promise passes none that is there."""
    clock = LeapingClock()
    async with one_by_one(tmp_path, "elastic", ttft_s=20.0, clock=clock) as (front, server):
        for number in range(6):
            asked = ask(front, f"slow{number}")
            await until_asked(server, number + 1)
            clock.leapt_s += 6.0
            server.turns.release()
            assert (await asked).status_code == 200

        def alone_s():
            return prefill_s(front.router.statuses()["s0"].services[0].prefill_cost, 7)

        await until(lambda: alone_s() > 5.0)
        first = ask(front, "first")
        await until_asked(server, 7)
        refused = await ask(front, "late", {"x-slo-ttft-ms": f"{1200 * alone_s():.0f}"})
        server.turns.release()
        assert (await first).status_code == 200
    assert refused.status_code == 429, refused.text
    assert float(refused.headers["retry-after"]) > 0
    assert server.asked[-1] == "first"
