"""When requests are due, what they ask for, and how processes share them."""

import statistics
from itertools import pairwise
from random import Random

import pytest

from bench.load.generator.wire import Pace, Shape
from bench.load.prompts.planning import Extent, Lengths, Plan, shape_of
from simulation.loads.arrival_processes import Arrivals, Process
from simulation.loads.trace_request import TraceRequest


def gaps_of(arrivals: Arrivals, seed: int, number: int = 20_000) -> list[float]:
    times = Extent(number).times(arrivals, Random(seed))
    return [later - earlier for earlier, later in pairwise([0.0, *times])]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        (Arrivals(5.0), 1.0),
        (Arrivals(5.0, Process.GAMMA, 3.0), 3.0),
        (Arrivals(5.0, Process.GAMMA, 0.5), 0.5),
        (Arrivals(5.0, Process.CONSTANT), 0.0),
    ],
)
def test_gaps_have_the_mean_and_variation_that_were_asked_for(arrivals: Arrivals, cv: float, seed: int):
    gaps = gaps_of(arrivals, seed)
    assert statistics.fmean(gaps) == pytest.approx(0.2, rel=0.08)
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(cv, rel=0.12, abs=1e-9)


def test_bursts_keep_the_mean_rate():
    times = Extent(None, 400.0).times(Arrivals(5.0, Process.BURST), Random(1))
    assert len(times) == pytest.approx(2000, rel=0.1)
    assert sum(at_s % 40 < 10 for at_s in times) == pytest.approx(1500, rel=0.1)  # a quarter of the time, three fold


def test_an_extent_ends_by_number_or_by_time():
    arrivals = Arrivals(10.0, Process.CONSTANT)
    assert len(Extent(7).times(arrivals, Random(0))) == 7
    assert len(Extent(None, 1.05).times(arrivals, Random(0))) == 10
    assert len(Extent(4, 1.05).times(arrivals, Random(0))) == 4
    assert Extent(3).times(None, Random(0)) == [0.0, 0.0, 0.0]
    trace = [TraceRequest(at_s, 1, 1) for at_s in (0.0, 1.0, 2.0, 3.0)]
    assert Extent(None, 2.5).cut(trace) == trace[:3]
    assert Extent(1, 2.5).cut(trace) == trace[:1]


def test_equal_seeds_make_equal_plans():
    assert gaps_of(Arrivals(2.0), 4, 50) == gaps_of(Arrivals(2.0), 4, 50) != gaps_of(Arrivals(2.0), 5, 50)
    lengths = Lengths((10, 20), (3, 3))
    drawn = lengths.draw(500, Random(2))
    assert drawn == lengths.draw(500, Random(2))
    assert {one.num_input for one in drawn} == set(range(10, 21))
    assert {one.num_output for one in drawn} == {3}


@pytest.mark.parametrize("num_parts", [1, 2, 3, 7])
def test_processes_share_all_requests_and_all_slots(num_parts: int):
    shapes = tuple(Shape("tiny", number + 1, 1) for number in range(20))
    due_s = tuple(float(number) for number in range(20))
    plan = Plan(shapes, Pace(due_s, 10))
    parts = [plan.part(index, num_parts) for index in range(num_parts)]
    assert sorted(shape.num_input for part in parts for shape in part.shapes) == list(range(1, 21))
    for part in parts:
        assert [shape.num_input - 1.0 for shape in part.shapes] == list(part.pace.due_s or ())
    assert sum(part.pace.num_slots or 0 for part in parts) == 10


def test_no_process_is_idle():
    shapes = (Shape("tiny", 1, 1),) * 3
    assert Plan(shapes, Pace()).num_parts(8) == 3
    assert Plan(shapes, Pace(num_slots=2)).num_parts(8) == 2
    assert Plan(shapes, Pace(num_slots=9)).num_parts(2) == 2


def test_a_traced_request_keeps_its_promise_blocks_and_priority():
    shape = shape_of(TraceRequest(3.0, 1024, 5, (1, 2), "chat", 0.5, None, 7), "chat")
    assert (shape.model, shape.num_input, shape.num_output, shape.blocks, shape.priority) == (
        "chat",
        1024,
        5,
        (1, 2),
        7,
    )
    assert shape.promise is not None
    assert (shape.promise.ttft_s, shape.promise.tpot_s) == (0.5, None)
    assert shape_of(TraceRequest(0.0, 1, 1), "chat").promise is None
