"""The placement daemon beside a plan that stays: who gets which requests, and what is made of the answers."""

from collections import Counter
from pathlib import Path

import pytest

from bench.load.results.outcome import Failure, Outcome
from bench.placement.daemon import DAEMON, NUM_PHASES, PLACED, STAYS, Alone, compare, draw, topology_text
from mesh.topology.parse import load
from simulation.loads.trace_request import TraceRequest


def test_requests_shift_from_one_service_to_the_other_and_back():
    requests = draw(0, scale=0.5)
    assert requests == draw(0, scale=0.5) != draw(100, scale=0.5)
    assert [one.at_s for one in requests] == sorted(one.at_s for one in requests)
    count = Counter((one.service, int(NUM_PHASES * one.at_s)) for one in requests)
    assert count["left", 0] == count["left", 2] > 4 * count["left", 1]
    assert count["right", 1] > 4 * count["right", 0] == 4 * count["right", 2]


@pytest.mark.parametrize("contender", [STAYS, DAEMON])
def test_both_begin_with_the_same_places(contender: str, tmp_path: Path):
    path = tmp_path / "topology.toml"
    path.write_text(topology_text(contender))
    topology = load(path)
    assert {engine.id: engine.services for engine in topology.engines} == PLACED
    assert (topology.placement is not None) == (contender == DAEMON)


REQUESTS = [TraceRequest(at_s, 1, 5, service=name) for at_s, name in ((0.1, "left"), (0.4, "chat"), (0.9, "left"))]
ALONE = Alone([1.0, 0.5, 3.0], ["a", "b", "c"])


def outcome(number: int, took_s: float, text: str, failure: Failure | None = None) -> Outcome:
    sent_s, ended_s = 10.0, 10.0 + took_s
    times = {"first_s": 10.1, "last_s": ended_s}
    return Outcome(number, "m", *[sent_s] * 3, ended_s, 1, 5, **times, failure=failure, text=text)


def test_latencies_are_normalised_by_service_and_tokens_compared():
    outcomes = [outcome(0, 6.0, "a"), outcome(1, 1.0, "other"), outcome(2, 4.0, "c", Failure.BROKEN)]
    served = compare(REQUESTS, outcomes, ALONE)
    assert [one.normalised for one in served] == [3.0, 2.0, 2.0]
    assert [one.is_served for one in served] == [True, True, False]
    assert [one.is_same for one in served] == [True, False, False]
    assert [one.is_kept for one in served] == [False, True, False]


def test_what_requests_take_alone_says_how_long_they_arrive():
    assert ALONE.duration_s == pytest.approx(4.5 / 2.7)
