from itertools import pairwise

import pytest

from simulation.loads.trace_request import TraceRequest
from simulation.search.samples import NUM_BLOCKS, draw_sample

# The gap after each request is its number.
RECORDING = [TraceRequest(number * (number - 1) / 2, 100 + number, 10) for number in range(160)]


def numbers(sample):
    return [request.num_input - 100 for request in sample]


def test_a_seed_gives_the_same_sample_and_another_one_another():
    assert draw_sample(RECORDING, 50, 3) == draw_sample(RECORDING, 50, 3)
    assert numbers(draw_sample(RECORDING, 50, 3)) != numbers(draw_sample(RECORDING, 50, 4))


def test_no_request_comes_twice():
    whole = numbers(draw_sample(RECORDING, 160, 1))
    assert sorted(whole) == list(range(160))


def test_requests_of_a_block_follow_each_other_as_they_did():
    sample = draw_sample(RECORDING, 160, 5)
    following = [
        (own.num_input, later.at_s - own.at_s)
        for own, later in pairwise(sample)
        if later.num_input == own.num_input + 1
    ]
    assert len(following) >= 160 - NUM_BLOCKS - 2
    assert all(gap_s == pytest.approx(num_input - 100) for num_input, gap_s in following)


def test_a_sample_begins_at_zero_and_time_goes_on():
    times = [request.at_s for request in draw_sample(RECORDING, 40, 2)]
    assert times[0] == 0
    assert times == sorted(times)


def test_a_short_sample_is_the_beginning_of_a_long_one():
    assert draw_sample(RECORDING, 20, 7) == draw_sample(RECORDING, 60, 7)[:20]
