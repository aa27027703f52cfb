"""Who arrives next in a load, and what conversations share."""

from random import Random

import pytest

from simulation.loads.closed_loop import ClosedLoop, asked_requests
from simulation.loads.mix import Mix
from simulation.loads.play import TURNAROUND_S, ClosedPlay, OpenPlay, most_turns
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import prompt_of


def one(num_input=10, **fields):
    return TraceRequest(**({"at_s": 0.0} | fields), num_input=num_input, num_output=2)


TALK = one(at_s=5.0, then=(one(30, think_s=2.0), one(50, at_s=100.0, think_s=1.0)))


def test_open_requests_arrive_at_their_times_whatever_ends():
    play = OpenPlay([one(at_s=1.0), one(at_s=2.0)])
    assert [(arrival.at_s, arrival.number) for arrival in play.arrivals()] == [(1.0, 0), (2.0, 1)]
    assert play.ended(0, 9.0) is None


def test_a_turn_waits_for_the_answer_before_it_and_for_its_time():
    play = OpenPlay([one(at_s=1.0), TALK], most_turns([TALK]))
    assert [(arrival.at_s, arrival.number) for arrival in play.arrivals()] == [(1.0, 0), (5.0, 3)]
    second = play.ended(3, 8.0)
    assert (second.at_s, second.number, second.origin, second.request.num_input) == (10.0, 4, 3, 30)
    third = play.ended(4, 12.0)
    assert (third.at_s, third.number, third.origin) == (100.0, 5, 3)
    assert play.ended(5, 101.0) is None


def test_prompts_of_a_conversation_begin_with_those_before():
    first, second = prompt_of(TALK, 3), prompt_of(TALK.then[0], 3)
    assert second[:10] == first == [255, 3, 0, 0, 0, 255, 3, 0, 0, 0]
    assert len(second) == 30


def test_clients_take_requests_in_order_and_think_before_each():
    play = ClosedPlay(ClosedLoop([one(think_s=float(number)) for number in range(4)], 2))
    assert [(arrival.at_s, arrival.number) for arrival in play.arrivals()] == [(0.0, 0), (1.0, 1)]
    third = play.ended(1, 6.0)
    assert (third.at_s, third.number) == (6.0 + TURNAROUND_S + 2.0, 2)
    assert play.ended(0, 7.0).number == 3
    assert play.ended(2, 8.0) is None


def test_a_client_ends_its_conversation_before_it_takes_another_one():
    play = ClosedPlay(ClosedLoop([TALK, one()], 1, most_turns=most_turns([TALK])))
    [first] = play.arrivals()
    assert [play.ended(first.number, 1.0).number, play.ended(1, 2.0).number, play.ended(2, 3.0).number] == [1, 2, 3]


def test_a_loop_with_a_duration_takes_its_requests_again_until_then():
    play = ClosedPlay(ClosedLoop([one(1), one(2)], 1, duration_s=10.0))
    [arrival] = play.arrivals()
    found = [arrival]
    while (arrival := play.ended(arrival.number, arrival.at_s + 3.0)) is not None:
        found.append(arrival)
    assert [(arrival.number, arrival.request.num_input) for arrival in found] == [(0, 1), (1, 2), (2, 1), (3, 2)]


def test_a_loop_reads_no_more_requests_than_are_asked():
    ahead = iter([one(number) for number in range(1, 6)])
    play = ClosedPlay(ClosedLoop(ahead, 2))
    first, _ = play.arrivals()
    assert play.ended(first.number, 1.0).request.num_input == 3
    assert [request.num_input for request in ahead] == [4, 5]


def test_a_loop_with_more_clients_than_requests_begins_with_all_of_them():
    assert len(list(ClosedPlay(ClosedLoop([one(), one()], 10**15)).arrivals())) == 2


def test_times_to_think_have_the_mean_that_was_asked_for_and_change_no_request():
    def draw(random: Random):
        return [one(random.randint(1, 1000)) for _ in range(4000)]

    mix = Mix(("a", "b"), (0.5, 0.5))
    slow, quick = (list(asked_requests(draw, think_s, mix, 7)) for think_s in (2.0, 0.0))
    assert sum(request.think_s for request in slow) / 4000 == pytest.approx(2.0, rel=0.05)
    assert [(request.num_input, request.service) for request in slow] == [
        (request.num_input, request.service) for request in quick
    ]


def test_all_turns_ask_for_the_service_of_their_conversation():
    asked = TALK.asking("chat")
    assert {turn.service for turn in (asked, *asked.then)} == {"chat"}
