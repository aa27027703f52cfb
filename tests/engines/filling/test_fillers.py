"""Requests without a promise stand beside the queue, and give way to whoever wants their memory."""

from engines.engine_request import EngineRequest
from engines.filling.fillers import Fillers
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from tests.engines.conftest import MakeSequence


def a_pool() -> BlockPool:
    return BlockPool(PagePool(16), 4)


def running(fillers: Fillers, pool: BlockPool, request: EngineRequest, num_blocks: int) -> EngineRequest:
    request.blocks += pool.allocate(num_blocks)
    fillers.running.append(request)
    return request


def test_the_latest_gives_way_first_and_no_more_than_is_needed(make_sequence: MakeSequence):
    fillers, pool = Fillers(), a_pool()
    first, second, third = (running(fillers, pool, make_sequence(f"r{number}"), 4) for number in range(3))
    fillers.give_way(pool, lambda: pool.num_free >= 7)
    assert (fillers.running, fillers.waiting) == ([first, second], [third])
    assert (len(third.blocks), pool.num_free, fillers.num_preempted) == (0, 8, 1)


def test_what_the_running_step_writes_stays(make_sequence: MakeSequence):
    fillers, pool = Fillers(), a_pool()
    first, second = (running(fillers, pool, make_sequence(f"r{number}"), 4) for number in range(2))
    fillers.computing = (second,)
    fillers.give_way(pool, lambda: False)
    assert (fillers.running, fillers.waiting) == ([second], [first])


def test_those_that_gave_way_go_on_first(make_sequence: MakeSequence):
    fillers, pool = Fillers(), a_pool()
    fillers.waiting.append(waits := make_sequence("waits"))
    first, second = (running(fillers, pool, make_sequence(f"r{number}"), 4) for number in range(2))
    fillers.give_way(pool, lambda: False)
    assert fillers.all() == [first, second, waits]


def test_their_blocks_are_counted_anew_when_they_change(make_sequence: MakeSequence):
    fillers, pool = Fillers(), a_pool()
    assert fillers.num_blocks(pool) == 0
    first = running(fillers, pool, make_sequence("r0"), 4)
    assert fillers.num_blocks(pool) == 4
    running(fillers, pool, make_sequence("r1"), 3)
    assert fillers.num_blocks(pool) == 7
    fillers.remove(first)
    first.release_blocks(pool)
    assert fillers.num_blocks(pool) == 3


def test_a_block_that_a_promise_holds_too_is_not_counted(make_sequence: MakeSequence):
    fillers, pool = Fillers(), a_pool()
    request = running(fillers, pool, make_sequence(), 4)
    pool.hold(request.blocks[:1])
    assert fillers.num_blocks(pool) == 3
