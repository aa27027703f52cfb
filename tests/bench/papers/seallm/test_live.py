"""The live comparison of services on two engines: the same requests for all, and what is made of the answers."""

from collections import Counter
from pathlib import Path

import pytest

from bench.live.http_load import Answer
from bench.papers.seallm.live import (
    NUM_PHASES,
    SETTINGS,
    Alone,
    Outcome,
    Request,
    Run,
    Setting,
    draw,
    mean,
    outcomes_of,
    ratios,
    topology_text,
)
from mesh.topology.parse import load


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_requests_shift_from_one_service_to_the_other_and_back(setting: Setting):
    requests = draw(setting, 0, scale=0.5)
    assert requests == draw(setting, 0, scale=0.5) != draw(setting, 100, scale=0.5)
    assert [one.place for one in requests] == sorted(one.place for one in requests)
    count = Counter((one.service, int(NUM_PHASES * one.place)) for one in requests)
    large, small, *_ = setting.services
    assert count[large, 0] == count[large, 2] > 4 * count[large, 1]
    assert count[small, 1] > 4 * count[small, 0] == 4 * count[small, 2]


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_engines_hold_what_a_contender_says(setting: Setting, tmp_path: Path):
    path = tmp_path / "topology.toml"
    for contender in setting.contenders:
        path.write_text(topology_text(setting, contender))
        topology = load(path)
        assert {engine.scheduling for engine in topology.engines} == {contender.scheduling}
        assert {engine.id: engine.services for engine in topology.engines} == contender.placement
        assert (topology.placement is not None) == contender.has_daemon


REQUESTS = [Request("long", 0.1, [1], 5), Request("short", 0.4, [1], 5), Request("long", 0.9, [1], 5)]
ALONE = Alone([1.0, 0.5, 3.0], ["a", "b", "c"])


def answer(number: int, took_s: float, text: str, status: int = 200) -> Answer:
    return Answer(number, 10.0, status, 10.1, 10.0 + took_s, {}, text)


def test_latencies_are_normalised_by_service_and_tokens_compared():
    answers = [answer(0, 6.0, "a"), answer(1, 1.0, "other"), answer(2, 4.0, "c", status=0)]
    first, second, third = outcomes_of(REQUESTS, answers, ALONE)
    assert (first.normalised, second.normalised) == (3.0, 2.0)
    assert [one.is_served for one in (first, second, third)] == [True, True, False]
    assert [one.is_same for one in (first, second, third)] == [True, False, False]
    assert [one.is_kept for one in (first, second, third)] == [False, True, False]
    assert ALONE.duration_s(load=0.5) == 4.5


def run(seed: int, *normalised: float) -> Run:
    outcomes = [Outcome("long", value, True, True, value < 5.0) for value in normalised]
    return Run("one", seed, outcomes, 0, 0, 0.0)


def test_ratios_are_of_runs_with_the_same_seed():
    assert (
        ratios([run(0, 2.0, 4.0), run(1, 8.0)], [run(1, 1.0), run(0, 1.0, 2.0), run(2, 100.0)]) == "4.00 (2.00 to 8.00)"
    )
    assert ratios([run(0, 2.0)], []) == ""


def test_what_was_not_served_has_no_latency():
    assert mean([*run(0, 1.0, 3.0).outcomes, Outcome("long", 0.0, False, False, False)]) == 2.0
