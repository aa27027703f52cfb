"""Where one thing is done at a time, clients take turns, and no line is longer than it may be."""

import asyncio

import pytest

from router.api.openai.input.turns import Line, LineLimits, Turns
from router.generation import Overloaded

LIMITS = LineLimits("grammars", max_of_one=2, max_waiting=3, wait_s=60.0)


def turn() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


async def test_clients_take_turns_and_each_ones_own_are_in_order():
    turns, order = Turns(LineLimits("grammars", 9, 9, 1.0)), ["a1", "a2", "a3", "b1", "c1", "b2"]
    futures = {name: turn() for name in order}
    for name, future in futures.items():
        turns.join(name[0], future)
    names = {future: name for name, future in futures.items()}
    came = [names[future] for _ in order if (future := turns.next()) is not None]
    assert came == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert turns.next() is None


async def test_who_gave_up_waiting_is_passed_over():
    turns, gone, here = Turns(LIMITS), turn(), turn()
    turns.join("a", gone)
    turns.join("b", here)
    gone.cancel()
    assert turns.next() is here


async def test_one_client_may_have_so_many_and_all_together_so_many():
    turns = Turns(LIMITS)
    for _ in range(2):
        turns.join("a", turn())
    with pytest.raises(Overloaded, match="2 of yours"):
        turns.join("a", turn())
    turns.join("b", turn())
    with pytest.raises(Overloaded, match="0 of yours"):
        turns.join("c", turn())
    turns.next()
    turns.join("c", turn())


async def enter(line: Line, client: str, entered: list[str], leave: asyncio.Event) -> None:
    async with line.turn(client):
        entered.append(client)
        await leave.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_line_lets_one_in_at_a_time():
    line, entered, leaves = Line(LIMITS), list[str](), [asyncio.Event() for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        for client, leave in zip("aab", leaves, strict=True):
            tasks.create_task(enter(line, client, entered, leave))
            await settle()
        assert entered == ["a"]
        leaves[0].set()
        await settle()
        assert entered == ["a", "a"], "it came before the other client"
        leaves[1].set()
        leaves[2].set()
    assert entered == ["a", "a", "b"]


async def test_who_is_cancelled_when_its_turn_has_come_passes_it_on():
    line, entered, leave = Line(LIMITS), list[str](), asyncio.Event()
    first = asyncio.create_task(enter(line, "a", entered, leave))
    await settle()
    second, third = (asyncio.create_task(enter(line, client, entered, leave)) for client in "bc")
    await settle()
    leave.set()
    await asyncio.sleep(0)  # the first has left, and the second does not know yet
    second.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert entered == ["a", "c"]


async def test_nobody_waits_for_longer_than_may():
    line, entered, leave = Line(LineLimits("grammars", 2, 3, 0.0)), list[str](), asyncio.Event()
    first = asyncio.create_task(enter(line, "a", entered, leave))
    await settle()
    with pytest.raises(Overloaded, match="too many grammars are waiting"):
        await enter(line, "b", entered, leave)
    leave.set()
    await first
    await enter(line, "b", entered, leave)
    assert entered == ["a", "b"]
