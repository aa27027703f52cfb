"""What of a run counts."""

from random import Random

from bench.load.generator.wire import Pace, Shape
from bench.load.prompts.planning import Plan
from bench.load.results.goodput import parse_promises
from bench.load.results.judged import Judged
from bench.load.results.outcome import Failure
from simulation.reports.steadiness import Steadiness
from tests.bench.load.small import failed, outcome

SHAPES = (Shape("tiny", 4, 2),)
OPEN, CLOSED = Plan(SHAPES, Pace((0.0,))), Plan(SHAPES, Pace(None, 8))


def filling(number=1000, full_after=100):
    """Arrivals 0.1 s apart; each stays longer than the one before it, until the server is full."""
    random = Random(0)
    found = []
    for index in range(number):
        stay_s = 10.0 * min(1.0, index / full_after) + random.uniform(0, 1)
        due_s = 0.1 * index
        found.append(
            outcome(index, due_s=due_s, first_s=due_s + stay_s / 2, last_s=due_s + stay_s, ended_s=due_s + stay_s)
        )
    return found


def test_the_warm_up_does_not_count():
    outcomes = filling()
    judged = Judged.of(outcomes, OPEN, None)
    assert judged.judgement.steadiness is Steadiness.STEADY
    assert 100 <= 1000 - len(judged.counted) <= 300
    assert judged.begin_s == judged.counted[0].due_s
    low, high = judged.json(None)["intervals"]["mean_ttft_ms"]
    assert low < 5250 < high
    assert high - low < 200


def test_what_is_skipped_by_wish_is_all_that_is_skipped():
    judged = Judged.of(filling(), OPEN, 0.0)
    assert (len(judged.counted), judged.begin_s) == (1000, 0.0)
    assert len(Judged.of(filling(), OPEN, 50.0).counted) == 500


def test_a_closed_loop_warms_up_by_its_waits():
    assert 100 <= 1000 - len(Judged.of(filling(), CLOSED, None).counted) <= 300


def test_all_of_a_trace_counts():
    judged = Judged.of(filling(), Plan(SHAPES, Pace((0.0,)), is_stationary=False), None)
    assert len(judged.counted) == 1000
    assert judged.json(None) == {"steadiness": "steady"}


def test_a_server_that_is_overloaded_is_told():
    outcomes = [outcome(number, due_s=0.1 * number, ended_s=0.2 * number + 1) for number in range(400)]
    judged = Judged.of(outcomes, OPEN, None)
    [warning] = judged.warnings(10.0)
    assert "10/s is more than this serves, or 400 requests are too few" in warning
    assert judged.json(parse_promises(["ttft:1"])) == {"steadiness": "growing"}


def test_bounds_of_attainment_are_there_with_promises():
    promises = parse_promises(["ttft:5300"])
    low, high = Judged.of(filling(), OPEN, None).json(promises)["intervals"]["slo_attainment"]
    assert 0 < low < high < 1


def test_a_loop_that_is_mostly_refused_is_told():
    refused = [failed(Failure.REFUSED, number, ended_s=1.001, status=429) for number in range(60)]
    others = [failed(Failure.TIMEOUT, number) for number in range(60, 100)]
    judged = Judged.of([*refused, *others], CLOSED, 0.0)
    told = judged.warnings(None)[-1]
    assert told.startswith("60 of 100 requests were refused, and whoever is refused asks again at once")
    assert "--concurrency" in told
    elsewhere = (
        Judged.of([*refused, *others], OPEN, 0.0),
        Judged.of([*refused[:50], *others, *others[:10]], CLOSED, 0.0),
    )
    assert not any("refused" in line for judged in elsewhere for line in judged.warnings(None))
