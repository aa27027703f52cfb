"""What is sent next, and what is left out."""

import pytest

from router.profiling.experiments import Aim
from router.profiling.load_design import ONE_EXPERIMENT, LoadDesign, LoadLimits
from tests.router.profiling.virtual_server import VirtualServer


def whole_round(design, server=None):
    sent = []
    for experiment in design.experiments():
        sent.append(experiment)
        if server is not None:
            design.saw(server.run(experiment))
    return sent


def test_a_round_goes_from_short_to_long():
    lengths = [
        one.asks[0].num_input for one in whole_round(LoadDesign(LoadLimits(600.0, 20_000))) if one.aim is Aim.PREFILL
    ]
    fitted = [length for length in lengths if length & (length - 1) == 0]
    assert fitted == sorted(fitted)


def test_nothing_is_longer_than_the_server_takes():
    sent = whole_round(LoadDesign(LoadLimits(600.0, 1000, 8)))
    assert max(one.num_longest for one in sent) <= 1000
    assert max(one.num_at_once for one in sent) <= 8


def test_what_takes_too_long_is_left_out():
    server, design = VirtualServer(), LoadDesign(LoadLimits(10.0, 20_000))
    sent = whole_round(design, server)
    assert design.left_out
    assert all(design.expected.duration_s(one) > ONE_EXPERIMENT * 10.0 for one in design.left_out)
    assert not design.left_out & set(sent)


def test_every_round_has_points_to_judge_by_of_each_kind():
    for _ in range(2):
        design = LoadDesign(LoadLimits(600.0, 20_000))
        aims = {one.aim for one in whole_round(design) if one.is_held_out}
        assert aims == {Aim.PREFILL, Aim.DECODE, Aim.JOIN}


def test_where_several_at_a_time_fail_fewer_are_sent():
    design = LoadDesign(LoadLimits(600.0, 20_000))
    crowd = next(one for one in design.experiments() if one.num_at_once > 1)
    design.failed(crowd)
    assert design.limits.most_together == crowd.num_at_once // 2 == 1
    assert {one.num_at_once for one in whole_round(design)} == {1}


def test_where_a_long_prompt_fails_shorter_ones_are_sent():
    design = LoadDesign(LoadLimits(600.0, 20_000))
    long = next(one for one in design.experiments() if one.num_longest > 4000)
    design.failed(long)
    assert max(one.num_longest for one in whole_round(design)) < long.num_longest


@pytest.mark.parametrize("budget_s", [5.0, 60.0])
def test_what_was_seen_tells_roughly_what_the_next_ones_take(budget_s):
    server, design = VirtualServer(), LoadDesign(LoadLimits(budget_s, 20_000))
    for experiment in design.experiments():
        expected, before = design.expected.duration_s(experiment), server.now
        design.saw(server.run(experiment))
        if expected > 0.5 and experiment.num_at_once <= server.max_running:  # more than that take turns
            assert server.now - before < 4 * expected
