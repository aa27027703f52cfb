"""A run's time is cut into stretches that count each request once."""

from itertools import pairwise
from random import Random

import pytest

from mesh.errors import UserError
from router.history.records import Outcome, Record
from simulation.loads.play import OpenPlay
from simulation.loads.trace_request import TraceRequest
from simulation.split.stretches import MOST_STRETCHES, cut


def record(arrived_s):
    return Record("r0", arrived_s, "large", 9, 2, 1.0, 0.1, Outcome.FINISHED)


def arrivals(random, number, tick_s):
    """Several at a time where a tick is long."""
    return sorted(round(random.uniform(0.0, 100.0) / tick_s) * tick_s for _ in range(number))


@pytest.mark.parametrize("tick_s", [1e-9, 0.5])
@pytest.mark.parametrize("number", [2, 3, 7])
def test_each_request_is_counted_once(number, tick_s):
    at_s = arrivals(Random(number), 500, tick_s)
    stretches = cut(at_s, number, lead_s=5.0)
    assert len(stretches) == number
    assert [sum(one.counts(record(at)) for one in stretches) for at in at_s] == [1] * len(at_s)
    assert [one.num_counted for one in stretches] == [sum(map(one.counts, map(record, at_s))) for one in stretches]
    if tick_s < 1e-3:
        assert max(one.num_counted for one in stretches) - min(one.num_counted for one in stretches) <= 1


def test_each_begins_its_lead_before_what_it_counts():
    at_s = [float(number) for number in range(100)]
    stretches = cut(at_s, 4, lead_s=10.5)
    assert [(one.begins_s, one.from_s) for one in stretches] == [(0.0, 0.0), (14.5, 25.0), (39.5, 50.0), (64.5, 75.0)]
    assert [one.num_before for one in stretches] == [0, 15, 40, 65], "who arrives when it begins is in it"
    assert all(earlier.until_s == later.from_s for earlier, later in pairwise(stretches))


def test_a_request_at_the_edge_belongs_to_the_later_stretch():
    first, second = cut([0.0, 1.0, 2.0, 2.0, 3.0, 4.0], 2, lead_s=0.5)
    assert [first.counts(record(2.0)), second.counts(record(2.0))] == [False, True]
    assert [first.num_counted, second.num_counted] == [2, 4]


def test_requests_keep_their_numbers_and_go_on_after_the_end():
    trace = [TraceRequest(float(at_s), 9, 2) for at_s in range(100)]
    [_, middle, _] = cut([request.at_s for request in trace], 3, lead_s=10.0)
    played = list(middle.play(OpenPlay(trace)).arrivals())
    assert [(due.number, due.at_s) for due in played] == [(number, float(number)) for number in range(23, 100)]


@pytest.mark.parametrize("number", [1, MOST_STRETCHES + 1, 10**30])
def test_a_senseless_number_of_stretches_is_refused(number):
    with pytest.raises(UserError, match=f"--split: {number} does not fit; a run is cut into 2 to {MOST_STRETCHES}"):
        cut([float(at_s) for at_s in range(10_000)], number, lead_s=0.0)


def test_stretches_that_are_shorter_than_their_lead_are_refused():
    at_s = [float(number) for number in range(101)]
    assert len(cut(at_s, 4, lead_s=25.0)) == 4
    with pytest.raises(UserError, match=r"of 5 stretches one would take 20 s, less than its lead of 25 s; take fewer"):
        cut(at_s, 5, lead_s=25.0)


def test_requests_that_come_at_once_are_not_cut():
    with pytest.raises(UserError, match="one would take 0 s"):
        cut([0.0] * 100, 2, lead_s=0.0)
