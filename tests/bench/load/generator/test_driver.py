"""Open and closed loops against a scripted server: what is sent when, and what latencies are counted from."""

import asyncio
import json
import time
from collections.abc import Sequence

import msgspec
import pytest

from bench.load.client.http import HttpClient
from bench.load.generator.driver import Driver
from bench.load.generator.wire import Assignment, Pace, Shape
from bench.load.results.outcome import Failure, Outcome, Promise
from tests.bench.load.small import HEAD, SHAPE, Asked, assignment, chunked, server, stream_of

HELD_S = 0.4


async def driven(given: Assignment, stop: asyncio.Event | None = None) -> list[Outcome]:
    outcomes: list[Outcome] = []
    client = HttpClient(given.address)
    await Driver(given, client, outcomes.append).run(time.monotonic(), stop or asyncio.Event())
    await client.close()
    return sorted(outcomes, key=lambda one: one.number)


async def quick(asked: Asked) -> None:
    asked.writer.write(stream_of(["a", "b"], prompt_tokens=4, completion_tokens=2))


@pytest.mark.parametrize("num_slots", [None, 1])
async def test_waiting_is_counted_from_when_a_request_was_due(num_slots: int | None):
    """A server that hangs for a while makes all late that were due meanwhile, whether they could be sent or not."""
    began = time.monotonic()

    async def answer(asked: Asked) -> None:
        await asyncio.sleep(max(0.0, began + HELD_S - time.monotonic()))
        await quick(asked)

    due_s = (0.0, 0.05, 0.1, 0.15, 0.2)
    async with server(answer) as here:
        outcomes = await driven(assignment(here.address, [SHAPE] * 5, Pace(due_s, num_slots)))
    lag_s = 0.1  # from when the server's time began until the load's did
    for one, due in zip(outcomes, due_s, strict=True):
        assert one.due_s == pytest.approx(due)
        assert one.sent_s >= one.woke_s >= due
        assert one.ttft_s is not None
        assert one.ttft_s >= HELD_S - due - lag_s
    last = outcomes[-1]
    assert last.first_s is not None
    if num_slots:  # it waited for its slot, so that from its sending on all looks well
        assert last.sent_s - last.due_s >= HELD_S - 0.2 - lag_s
        assert last.first_s - last.sent_s < last.ttft_s  # type: ignore[operator]


async def test_a_slot_is_one_request_at_a_time():
    active, most = 0, 0

    async def answer(asked: Asked) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.01)
        active -= 1
        await quick(asked)

    async with server(answer) as here:
        closed = await driven(assignment(here.address, [SHAPE] * 12, Pace(None, 3)))
        assert most == 3
        most = 0
        opened = await driven(assignment(here.address, [SHAPE] * 12, Pace((0.0,) * 12, 2)))
        assert most == 2
    assert [one.number for one in closed] == [one.number for one in opened] == list(range(12))
    assert all(one.is_finished and one.due_s == one.woke_s <= one.sent_s for one in closed)


async def test_a_closed_loop_with_a_duration_takes_its_shapes_again():
    async def answer(asked: Asked) -> None:
        await asyncio.sleep(0.01)
        await quick(asked)

    async with server(answer) as here:
        given = assignment(here.address, [SHAPE] * 3, Pace(None, 2, duration_s=0.3), first=1, step=2)
        outcomes = await driven(given)
    assert len(outcomes) > 3
    assert [one.number for one in outcomes] == list(range(1, 2 * len(outcomes), 2))
    assert max(one.due_s for one in outcomes) < 0.3 + 0.2


async def test_a_turn_of_a_conversation_waits_for_the_answer_before_it_and_begins_with_its_prompt():
    later = (Shape("tiny", 8, 2, think_s=0.05), Shape("tiny", 9, 2, at_s=0.4))
    talk = msgspec.structs.replace(SHAPE, then=later)
    async with server(quick) as here:
        pace = Pace((0.0, 0.1))
        first, *turns, other = await driven(assignment(here.address, [talk, SHAPE], pace, most_turns=3))
    assert [one.number for one in (first, *turns, other)] == [0, 1, 2, 3]
    assert first.ended_s + 0.05 <= turns[0].due_s < first.ended_s + 0.1
    assert turns[1].due_s == pytest.approx(0.4, abs=1e-6)
    prompts = sorted((json.loads(asked.body)["prompt"] for asked in here.asked), key=len)
    assert [len(prompt) for prompt in prompts] == [4, 4, 8, 9]
    assert prompts[3][:8] == prompts[2]
    assert prompts[2][:4] in prompts[:2]


async def test_clients_think_before_each_request_of_a_closed_loop():
    shapes = [Shape("tiny", 4, 2, think_s=think_s) for think_s in (0.05, 0.1, 0.15)]
    async with server(quick) as here:
        first, second, third = await driven(assignment(here.address, shapes, Pace(None, 2)))
        none = await driven(assignment(here.address, shapes, Pace(None, 1, duration_s=0.04)))
    assert 0.05 <= first.due_s < 0.1 <= second.due_s < 0.15
    assert first.ended_s + 0.15 <= third.due_s < first.ended_s + 0.25
    assert none == []


async def failures(answer: Sequence[bytes], timeout_s: float = 30.0) -> Outcome:
    async def serve(asked: Asked) -> None:
        for part in answer:
            asked.writer.write(part)
            await asked.writer.drain()
        if timeout_s < 1:
            await asyncio.sleep(30)
        asked.writer.close()

    async with server(serve) as here:
        (outcome,) = await driven(assignment(here.address, [SHAPE], Pace(None, 1), timeout_s=timeout_s))
    return outcome


def refusal(status: str) -> bytes:
    return f'HTTP/1.1 {status}\r\ncontent-length: 32\r\n\r\n{{"error": {{"message": "because"}}}} '.encode()


FIRST = HEAD + chunked(b'data: {"choices": [{"text": "a"}]}\n\n')


@pytest.mark.parametrize(
    ("answer", "failure", "status", "reason"),
    [
        ([refusal("429 Too Many Requests")], Failure.REFUSED, 429, "because"),
        ([refusal("503 Service Unavailable")], Failure.REFUSED, 503, "because"),
        ([refusal("400 Bad Request")], Failure.HTTP, 400, "because"),
        ([], Failure.CONNECTION, 0, "closed"),
        ([FIRST], Failure.BROKEN, 200, "closed"),
        ([FIRST + b"0\r\n\r\n"], Failure.BROKEN, 200, "DONE"),
        ([HEAD + chunked(b'data: {"error": {"message": "gone"}}\n\n') + b"0\r\n\r\n"], Failure.BROKEN, 200, "gone"),
        ([HEAD + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"], Failure.BROKEN, 200, "nothing"),
    ],
)
async def test_failures_are_told_apart(answer: Sequence[bytes], failure: Failure, status: int, reason: str):
    outcome = await failures(answer)
    assert (outcome.failure, outcome.status) == (failure, status)
    assert reason in str(outcome.reason)


async def test_an_answer_that_takes_too_long_is_given_up():
    outcome = await failures([FIRST], timeout_s=0.2)
    assert outcome.failure is Failure.TIMEOUT
    assert outcome.first_s is not None


async def test_stopping_cancels_what_is_on_its_way_and_sends_no_more():
    stop, never = asyncio.Event(), asyncio.Event()

    async def answer(asked: Asked) -> None:
        if len(here.asked) == 1:
            await quick(asked)
            return
        stop.set()
        await never.wait()

    async with server(answer) as here:
        given = assignment(here.address, [SHAPE] * 4, Pace((0.0, 0.1, 0.15, 60.0)))
        outcomes = await driven(given, stop)
    assert outcomes[0].is_finished
    assert {one.failure for one in outcomes[1:]} == {Failure.CANCELLED}
    assert len(outcomes) < 4


async def test_promises_and_priorities_go_along_when_they_are_to():
    shape = Shape("tiny", 4, 2, promise=Promise(ttft_s=0.5, tpot_s=0.05), priority=3)
    async with server(quick) as here:
        await driven(assignment(here.address, [shape], Pace(None, 1), sends_promises=True))
        await driven(assignment(here.address, [shape], Pace(None, 1)))
    first, second = (asked.head.lower() for asked in here.asked)
    assert "x-slo-ttft-ms: 500.000\r\n" in first
    assert "x-slo-tpot-ms: 50.000\r\n" in first
    assert "x-priority: 3\r\n" in first
    assert "x-slo" not in second


async def test_tokens_are_the_servers_count_or_else_the_events():
    async def answer(asked: Asked) -> None:
        usage = {"prompt_tokens": 40, "completion_tokens": 20} if len(here.asked) == 1 else {}
        asked.writer.write(stream_of(["a", "b", "c"], **usage))

    async with server(answer) as here:
        counted, estimated = await driven(assignment(here.address, [SHAPE] * 2, Pace(None, 1)))
    assert (counted.input_tokens, counted.output_tokens, counted.is_counted) == (40, 20, True)
    assert (estimated.input_tokens, estimated.output_tokens, estimated.is_counted) == (4, 3, False)
