"""Costs that drift while serving, in synthetic steps of known truth."""

import random
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engines.costs.learning import LARGEST_FACTOR, LearntCost
from engines.costs.step_cost import MixedCost, StepCost, StepLoad
from mesh.wire.status import DecodeCost, PrefillCost
from tests.seeds import each_seed

MEASURED = StepCost(
    PrefillCost(0.01, 1e-4, 1e-8, 1e-8, 256),
    DecodeCost(0.02, 1e-3, 2e-6, tuple((size, 0.02 + 1e-3 * size) for size in (1, 2, 4, 8, 16, 32))),
)
SEEDS = range(5)


def decodes(draw: random.Random) -> StepLoad:
    size = draw.choice([1, 2, 4, 8, 16, 32])
    return StepLoad([], size, size * draw.choice([100, 500, 1000, 2000]))


def mixed(draw: random.Random) -> StepLoad:
    return decodes(draw)._replace(chunks=[(draw.choice([64, 128, 256]), draw.choice([0, 256, 4096]))])


def time_s(cost: StepCost, load: StepLoad) -> float:
    return sum(cost.parts(load))


def measure(draw: random.Random, truth: StepCost, load: StepLoad, outliers: float = 0.02) -> float:
    slow = 10.0 if draw.random() < outliers else draw.lognormvariate(0.0, 0.05)
    return time_s(truth, load) * slow


def p90(cost: StepCost, truth: StepCost, loads: list[StepLoad], factor: float = 1.0) -> float:
    errors = sorted(abs(factor * time_s(cost, load) / time_s(truth, load) - 1) for load in loads)
    return errors[9 * len(errors) // 10]


def one_factor(steps: list[tuple[StepLoad, float]]) -> float:
    """The alternative: one factor on everything, the running mean of the logarithm, outliers bounded."""
    factor = 0.0
    for load, measured_s in steps:
        surprise = log(measured_s / time_s(MEASURED, load)) - factor
        factor += 0.1 * min(max(surprise, -log(2)), log(2))
    return exp(factor)


@each_seed(SEEDS)
def test_a_wrong_context_term_is_told_from_right_others_better_than_by_one_factor(seed: int):
    draw = random.Random(seed)
    truth = StepCost(MEASURED.prefill, replace(MEASURED.decode, per_context_token_s=4e-6))
    steps = [(load, measure(draw, truth, load)) for load in (decodes(draw) for _ in range(400))]
    learnt = LearntCost(MEASURED)
    for load, measured_s in steps:
        learnt.observe(load, measured_s)
    loads = [decodes(draw) for _ in range(200)]
    assert p90(learnt.current, truth, loads) < 0.06
    assert p90(MEASURED, truth, loads, one_factor(steps)) > 0.2
    assert learnt.current.decode.per_context_token_s == pytest.approx(4e-6, rel=0.15)
    assert learnt.current.decode.fixed_s == pytest.approx(0.02, rel=0.1)


@each_seed(SEEDS)
def test_iterations_of_prompts_and_decodes_teach_too(seed: int):
    draw = random.Random(seed)
    truth = StepCost(replace(MEASURED.prefill, fixed_s=0.02, per_token_s=2e-4), MEASURED.decode)
    learnt = LearntCost(MEASURED)
    for _ in range(400):
        load = mixed(draw) if draw.random() < 0.5 else decodes(draw)
        learnt.observe(load, measure(draw, truth, load))
    assert p90(learnt.current, truth, [mixed(draw) for _ in range(200)]) < 0.08
    assert p90(learnt.current, truth, [decodes(draw) for _ in range(200)]) < 0.08
    assert learnt.current.prefill.per_token_s == pytest.approx(2e-4, rel=0.15)


@each_seed(SEEDS)
def test_a_machine_that_slows_down_and_recovers_is_followed(seed: int):
    draw = random.Random(seed)
    learnt = LearntCost(MEASURED)
    for slowness in (2.0, 1.0):
        truth = StepCost(
            MEASURED.prefill,
            replace(
                MEASURED.decode,
                table=tuple((size, slowness * step_s) for size, step_s in MEASURED.decode.table),
                per_context_token_s=slowness * 2e-6,
            ),
        )
        for _ in range(60):
            load = decodes(draw)
            learnt.observe(load, measure(draw, truth, load, outliers=0.0))
        assert p90(learnt.current, truth, [decodes(draw) for _ in range(100)]) < 0.12


def test_steps_of_one_shape_move_both_factors_together():
    learnt = LearntCost(MEASURED)
    load = StepLoad([], 4, 4000)
    for _ in range(100):
        learnt.observe(load, 2 * time_s(MEASURED, load))
    other = StepLoad([], 32, 32 * 100)
    assert time_s(learnt.current, load) == pytest.approx(2 * time_s(MEASURED, load), rel=0.01)
    assert time_s(learnt.current, other) == pytest.approx(2 * time_s(MEASURED, other), rel=0.25)


def test_one_outlier_moves_predictions_by_little():
    learnt, load = LearntCost(MEASURED), StepLoad([], 8, 8000)
    learnt.observe(load, 1000.0)
    assert time_s(learnt.current, load) < 1.3 * time_s(MEASURED, load)
    for _ in range(200):
        learnt.observe(load, time_s(MEASURED, load))
    learnt.observe(load, 1000.0)
    assert time_s(learnt.current, load) < 1.06 * time_s(MEASURED, load)


def test_exact_steps_change_nothing():
    learnt = LearntCost(StepCost(MEASURED.prefill, MEASURED.decode, MixedCost(1e-4, 2e-6)))
    draw = random.Random(0)
    for _ in range(100):
        load = mixed(draw)
        learnt.observe(load, time_s(learnt.current, load))
    assert learnt.current is not None
    assert time_s(learnt.current, StepLoad([], 3, 300)) == pytest.approx(
        time_s(MEASURED, StepLoad([], 3, 300)), rel=1e-6
    )
    assert learnt.prefill_error == pytest.approx(0.0, abs=1e-9)


def test_errors_of_single_steps_cancel_out_in_what_is_told_of_decodes_and_those_of_all_do_not():
    draw, noisy, slow = random.Random(0), LearntCost(MEASURED), LearntCost(MEASURED)
    for number in range(64):
        noisy.observe(load := decodes(draw), time_s(noisy.current, load) * (0.85 if number % 2 else 1.15))
        slow.observe(load, time_s(slow.current, load) * 1.15)
    assert noisy.decode_error is not None
    assert noisy.decode_error < 0.05
    assert slow.decode_error == pytest.approx(0.15)


loads = st.builds(
    StepLoad,
    st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 4096)), max_size=3),
    st.integers(0, 64),
    st.integers(0, 100_000),
)


@given(st.lists(st.tuples(loads, st.floats(0, 1e6)), max_size=60))
def test_whatever_is_measured_factors_stay_in_bounds(steps: list[tuple[StepLoad, float]]):
    learnt = LearntCost(MEASURED)
    for load, measured_s in steps:
        learnt.observe(load, measured_s)
    cost = learnt.current
    for now, before in (
        (cost.prefill.per_token_s, MEASURED.prefill.per_token_s),
        (cost.prefill.per_token_context_s, MEASURED.prefill.per_token_context_s),
        (cost.decode.per_request_s, MEASURED.decode.per_request_s),
        (cost.decode.per_context_token_s, MEASURED.decode.per_context_token_s),
    ):
        assert before / LARGEST_FACTOR * 0.999 <= now <= before * LARGEST_FACTOR * 1.001
