import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engines.costs.fitting import (
    DecodeSample,
    MixedSample,
    PrefillSample,
    fit_decode,
    fit_mixed,
    fit_prefill,
    non_negative_least_squares,
    robust_fit,
)
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.step_cost import MixedCost, StepCost, StepLoad
from mesh.wire.status import DecodeCost, PrefillCost

GRID = [(8, 0), (32, 0), (128, 0), (256, 0), (64, 448)]
STEPS = [(1, 16), (1, 512), (4, 512), (8, 128), (8, 2048)]
SIZES = (8, 16, 32, 64, 128, 256)
coefficient = st.floats(1e-6, 1.0)


@given(coefficient, coefficient, st.floats(0, 1e-3))
def test_a_fit_of_exact_prefills_predicts_them(fixed_s, per_token_s, per_token_context_s):
    truth = PrefillCost(fixed_s, per_token_s, per_token_context_s)
    fitted = fit_prefill([PrefillSample(new, old, prefill_s(truth, new, old)) for new, old in GRID])
    for new, old in [*GRID, (500, 100)]:
        assert prefill_s(fitted, new, old) == pytest.approx(prefill_s(truth, new, old), rel=1e-3)


@given(coefficient, coefficient, st.floats(0, 1e-3))
def test_a_fit_of_exact_steps_predicts_them(fixed_s, per_request_s, per_context_token_s):
    truth = DecodeCost(fixed_s, per_request_s, per_context_token_s)
    fitted = fit_decode(
        [DecodeSample(requests, context, decode_step_s(truth, requests, context)) for requests, context in STEPS]
    )
    for requests, context in STEPS:
        expected = decode_step_s(truth, requests, context)
        assert decode_step_s(fitted, requests, context) == pytest.approx(expected, rel=1e-3)


@example(0.0078125, 3.0332999124345907e-05, 1e-09, 90256)  # both outliers are among the longest contexts
@given(st.floats(1e-3, 1e-2), st.floats(1e-5, 1e-4), st.floats(1e-9, 1e-8), st.integers(0, 10**6))
def test_noise_and_outliers_leave_coefficients_where_they_were(fixed_s, per_token_s, per_token_context_s, seed):
    draw = random.Random(seed)
    truth = PrefillCost(fixed_s, per_token_s, per_token_context_s)
    samples = []
    for new in SIZES:
        for old in (0, 256, 1024, 4096):
            slow = 5.0 if draw.random() < 0.05 else draw.lognormvariate(0.0, 0.01)
            samples.append(PrefillSample(new, old, prefill_s(truth, new, old) * slow))
    fitted = fit_prefill(samples)
    for new, old in ((48, 0), (200, 2000), (256, 4096)):
        assert prefill_s(fitted, new, old) == pytest.approx(prefill_s(truth, new, old), rel=0.1)


def test_sizes_that_no_line_goes_through_make_a_table():
    truth = DecodeCost(0.0, 0.005, 1e-5, ((1, 0.03), (4, 0.09), (16, 0.12)))
    grid = [(n, n * context) for n in (1, 4, 16) for context in (16, 256)] + [(8, 800)]
    fitted = fit_decode([DecodeSample(n, context, decode_step_s(truth, n, context)) for n, context in grid])
    assert {1, 4, 16} <= {size for size, _ in fitted.table}
    for num_requests in (1, 2, 4, 10, 16):
        expected = decode_step_s(truth, num_requests, 500)
        assert decode_step_s(fitted, num_requests, 500) == pytest.approx(expected, rel=1e-3)


def test_prompts_that_are_level_and_then_rise_make_a_table():
    truth = PrefillCost(0.0, 1e-4, 1e-8, table=((1, 0.03), (128, 0.03), (1024, 0.15)))
    grid = [(new, old) for new in (1, 16, 32, 64, 128, 256, 512, 1024) for old in (0, 2048)]
    fitted = fit_prefill([PrefillSample(new, old, prefill_s(truth, new, old)) for new, old in grid])
    for new, old in ((24, 0), (100, 512), (700, 1024)):
        assert prefill_s(fitted, new, old) == pytest.approx(prefill_s(truth, new, old), rel=0.02)


def test_what_a_line_tells_as_well_is_no_table():
    draw = random.Random(1)
    truth = DecodeCost(0.02, 0.001, 1e-6)
    grid = [(n, n * context) for n in (1, 2, 4, 8, 16, 32) for context in (16, 256, 1024)]
    samples = [DecodeSample(n, c, decode_step_s(truth, n, c) * draw.lognormvariate(0, 0.02)) for n, c in grid]
    assert fit_decode(samples).table == ()


def test_the_longest_context_counts_where_it_does():
    truth = DecodeCost(0.02, 0.001, 1e-6, (), 1e-5)
    grid = [(n, n * context) for n in (1, 2, 4, 8, 16) for context in (16, 256, 1024, 4096)]
    fitted = fit_decode([DecodeSample(n, c, decode_step_s(truth, n, c)) for n, c in grid])
    assert fitted.per_mean_context_token_s == pytest.approx(1e-5, rel=0.01)


@given(st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 4096), st.floats(0, 10.0)), min_size=1, max_size=8))
def test_no_measurement_gives_negative_or_absurd_coefficients(measurements):
    cost = fit_prefill([PrefillSample(*measurement) for measurement in measurements])
    assert cost.fixed_s >= 0
    assert cost.per_token_s >= 0
    assert cost.per_token_context_s >= 0
    assert [time_s for _, time_s in cost.table] == sorted(time_s for _, time_s in cost.table)
    assert all(prefill_s(cost, new, old) <= 1e3 for new, old, _ in measurements)


def test_an_outlier_hardly_moves_a_fit():
    truth = PrefillCost(0.01, 0.001)
    samples = [PrefillSample(new, 0, prefill_s(truth, new)) for new in SIZES]
    samples[2] = PrefillSample(32, 0, 20 * samples[2].elapsed_s)
    assert prefill_s(fit_prefill(samples), 100) == pytest.approx(prefill_s(truth, 100), rel=0.1)


def test_one_sample_is_predicted_and_none_is_an_error():
    assert prefill_s(fit_prefill([PrefillSample(64, 0, 0.5)]), 64) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no samples"):
        fit_prefill([])


def test_what_decodes_add_to_prompts_is_fitted_unless_it_is_as_assumed():
    assumed = StepCost(PrefillCost(0.01, 1e-3, 1e-7), DecodeCost(0.005, 1e-3, 1e-6))
    loads = [StepLoad([(n, 0)], b, b * c) for n in (32, 128) for c in (50, 512) for b in (2, 8, 16)]
    loads += [StepLoad([(n, 0), (n, 64)], 0, 0) for n in (16, 32, 64)]
    truth = StepCost(assumed.prefill, assumed.decode, MixedCost(3e-3, 2e-6, 4e-3))
    fitted = fit_mixed(assumed, [MixedSample(load, sum(truth.parts(load))) for load in loads])
    assert fitted.mixed is not None
    assert fitted.mixed.per_decode_s == pytest.approx(3e-3, rel=0.01)
    assert fitted.mixed.per_prompt_s == pytest.approx(4e-3, rel=0.01)
    assert fit_mixed(assumed, [MixedSample(load, sum(assumed.parts(load))) for load in loads]) == assumed
    assert fit_mixed(assumed, []) == assumed


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 12))
def test_least_squares_meet_the_conditions_of_an_optimum(seed, num_columns, num_rows):
    draw = np.random.default_rng(seed)
    matrix, target = draw.normal(size=(num_rows, num_columns)), draw.normal(size=num_rows)
    solution = non_negative_least_squares(matrix, target)
    gradient = matrix.T @ (target - matrix @ solution)
    assert (solution >= 0).all()
    assert (gradient <= 1e-6).all()
    assert np.abs(gradient[solution > 1e-9]).max(initial=0.0) <= 1e-6


def test_of_terms_that_nothing_tells_apart_the_first_gets_all():
    for elapsed_s in (6.0007, 6.0011, 0.3):
        assert robust_fit([(1, 7, 1)] * 5, [elapsed_s] * 5) == pytest.approx([elapsed_s, 0.0, 0.0])
