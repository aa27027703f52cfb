"""Requests of a service by where they stand: what they may grow into, how far a slice goes, and who has no KV."""

import pytest

from engines.engine_request import EngineRequest
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.scheduling.queue import ServiceQueue
from tests.engines.conftest import MakeSequence

SLICE = 8


@pytest.fixture
def queue() -> ServiceQueue:
    return ServiceQueue("tiny", BlockPool(PagePool(10), 4))


def holding(queue: ServiceQueue, request: EngineRequest, granted: int | None = None) -> EngineRequest:
    request.blocks, request.granted = queue.pool.allocate(2), granted
    return request


def test_without_slices_each_that_runs_may_take_a_block(queue: ServiceQueue, make_sequence: MakeSequence):
    queue.running += [make_sequence("a"), make_sequence("b")]
    assert (queue.growth_blocks, queue.slice_end(queue.running[0])) == (2, None)


def test_with_slices_each_may_take_what_it_was_granted(queue: ServiceQueue, make_sequence: MakeSequence):
    queue.slice_tokens = SLICE
    queue.running += [holding(queue, make_sequence("a"), 17), holding(queue, make_sequence("b"), 4)]
    queue.running.append(holding(queue, make_sequence("c")))
    assert queue.growth_blocks == 3
    queue.restoring.append(holding(queue, make_sequence("d"), 12))
    assert queue.growth_blocks == 4


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "decode_engine", "end"),
    [(8, 100, None, 16), (8, 3, None, 11), (8, 100, "other", 9), (36, 100, None, 40)],
)
def test_a_slice_ends_with_its_tokens_the_answer_the_hand_over_or_the_memory(
    queue: ServiceQueue,
    make_sequence: MakeSequence,
    num_prompt: int,
    max_tokens: int,
    decode_engine: str | None,
    end: int,
):
    queue.slice_tokens = SLICE
    request = make_sequence(num_prompt=num_prompt, max_tokens=max_tokens)
    request.decode_engine = decode_engine
    assert queue.slice_end(request) == end


def test_a_request_is_taken_out_wherever_it_waits_or_runs(queue: ServiceQueue, make_sequence: MakeSequence):
    for place in (queue.unreserved, queue.waiting, queue.running, queue.offloaded):
        request, other = make_sequence("r"), make_sequence("other")
        place += [request, other]
        queue.remove(request)
        assert place == [other]


def test_what_is_preempted_waits_without_blocks(queue: ServiceQueue, make_sequence: MakeSequence):
    request = holding(queue, make_sequence())
    queue.running.append(request)
    queue.preempt(request)
    assert (queue.running, queue.waiting, request.blocks, queue.pool.num_free) == ([], [request], [], 10)


def test_decodes_and_prompts_are_told_apart(queue: ServiceQueue, make_sequence: MakeSequence):
    decode, prompt, new = make_sequence("decode"), make_sequence("prompt"), make_sequence("new")
    decode.num_computed = prompt.num_computed = 7
    decode.num_computed += 1
    decode.append(5, None, 0.0)
    queue.running += [decode, prompt]
    queue.waiting.append(new)
    assert (queue.decoding(), list(queue.prompts())) == ([decode], [prompt, new])


def test_those_on_their_way_back_take_places_and_all_that_are_away_count(
    queue: ServiceQueue, make_sequence: MakeSequence
):
    queue.running.append(make_sequence())
    going, gone, coming = make_sequence("going"), make_sequence("gone"), make_sequence("coming")
    queue.offloading.append(going)
    queue.offloaded.append(gone)
    queue.restoring.append(coming)
    assert (queue.num_taken, queue.num_away, queue.away) == (2, 3, [going, gone, coming])


def test_one_whose_answer_fills_the_memory_is_no_hindrance_to_one_that_waits(
    queue: ServiceQueue, make_sequence: MakeSequence
):
    queue.slice_tokens = SLICE
    longest = make_sequence("a", num_prompt=queue.pool.num_blocks * queue.pool.block_size, max_tokens=100)
    queue.running.append(longest)
    longest.blocks, longest.granted = queue.pool.allocate(queue.pool.num_blocks), len(longest.tokens)
    waiting = make_sequence("b", num_prompt=8, max_tokens=100)
    assert queue.fitting_end(waiting, lambda end: False, 0) == (False, 9)
