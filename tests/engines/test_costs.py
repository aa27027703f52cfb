import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engines.costs import (
    Correction,
    DecodeSample,
    PrefillSample,
    decode_step_s,
    fit_decode,
    fit_prefill,
    prefill_s,
)
from mesh.messages import DecodeCost, PrefillCost

GRID = [(8, 0), (32, 0), (128, 0), (256, 0), (64, 448)]
STEPS = [(1, 16), (1, 512), (4, 512), (8, 128), (8, 2048)]
coefficient = st.floats(1e-6, 1.0)


def test_the_formulas_of_the_wire_types():
    assert prefill_s(PrefillCost(1.0, 0.1, 0.01), 10, 20) == pytest.approx(1 + 10 * 0.1 + 0.01 * 10 * (20 + 5))
    assert decode_step_s(DecodeCost(1.0, 0.5, 0.01), 4, 100) == pytest.approx(1 + 2 + 1)
    assert prefill_s(PrefillCost(1.0, 1.0), 0, 50) == 0.0
    assert decode_step_s(DecodeCost(1.0, 1.0), 0, 0) == 0.0


@given(st.integers(1, 2000), st.integers(0, 2000), st.integers(1, 700))
def test_a_chunked_prefill_costs_as_much_as_its_chunks(new, old, chunk_tokens):
    whole = PrefillCost(1.0, 0.1, 0.01, 0.001)
    chunks = [(start, min(chunk_tokens, new - start)) for start in range(0, new, chunk_tokens)]
    expected = sum(prefill_s(whole, num_tokens, old + start) for start, num_tokens in chunks)
    assert prefill_s(replace(whole, chunk_tokens=chunk_tokens), new, old) == pytest.approx(expected)


@settings(deadline=None)
@given(coefficient, coefficient, st.floats(0, 1e-3))
def test_a_fit_of_exact_prefills_predicts_them(fixed_s, per_token_s, per_token_context_s):
    truth = PrefillCost(fixed_s, per_token_s, per_token_context_s)
    fitted = fit_prefill([PrefillSample(new, old, prefill_s(truth, new, old)) for new, old in GRID])
    for new, old in [*GRID, (500, 100)]:
        assert prefill_s(fitted, new, old) == pytest.approx(prefill_s(truth, new, old), rel=1e-3)


@pytest.mark.parametrize(
    ("num_requests", "batch_s"), [(1, 3.0), (2, 3.0), (3, 4.0), (4, 5.0), (6, 5.5), (8, 6.0), (10, 6.0 + 2 * 0.5)]
)
def test_a_table_is_interpolated(num_requests, batch_s):
    cost = DecodeCost(100.0, 0.5, 0.01, ((2, 3.0), (4, 5.0), (8, 6.0)))
    assert decode_step_s(cost, num_requests, 100) == pytest.approx(batch_s + 1)


def test_sizes_measured_with_several_contexts_make_a_table():
    truth = DecodeCost(0.0, 0.005, 1e-5, ((1, 0.03), (4, 0.09), (16, 0.12)))
    grid = [(n, n * context) for n in (1, 4, 16) for context in (16, 256)] + [(8, 800)]
    fitted = fit_decode([DecodeSample(n, context, decode_step_s(truth, n, context)) for n, context in grid])
    assert [size for size, _ in fitted.table] == [1, 4, 16]
    for num_requests in (1, 2, 4, 10, 16):
        expected = decode_step_s(truth, num_requests, 500)
        assert decode_step_s(fitted, num_requests, 500) == pytest.approx(expected, rel=1e-3)


@settings(deadline=None)
@given(coefficient, coefficient, st.floats(0, 1e-3))
def test_a_fit_of_exact_steps_predicts_them(fixed_s, per_request_s, per_context_token_s):
    truth = DecodeCost(fixed_s, per_request_s, per_context_token_s)
    fitted = fit_decode(
        [DecodeSample(requests, context, decode_step_s(truth, requests, context)) for requests, context in STEPS]
    )
    for requests, context in STEPS:
        assert decode_step_s(fitted, requests, context) == pytest.approx(
            decode_step_s(truth, requests, context), rel=1e-3
        )


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 4096), st.floats(0, 10.0)), min_size=1, max_size=8))
def test_no_measurement_gives_negative_or_absurd_coefficients(measurements):
    cost = fit_prefill([PrefillSample(*measurement) for measurement in measurements])
    assert cost.fixed_s >= 0
    assert cost.per_token_s >= 0
    assert cost.per_token_context_s >= 0
    assert all(prefill_s(cost, new, old) <= 1e3 for new, old, _ in measurements)


def test_an_outlier_hardly_moves_a_fit():
    truth = PrefillCost(0.01, 0.001)
    samples = [PrefillSample(new, 0, prefill_s(truth, new)) for new in (8, 16, 32, 64, 128, 256)]
    samples[2] = PrefillSample(32, 0, 20 * samples[2].elapsed_s)
    assert prefill_s(fit_prefill(samples), 100) == pytest.approx(prefill_s(truth, 100), rel=0.1)


def test_one_sample_is_predicted_and_none_is_an_error():
    assert prefill_s(fit_prefill([PrefillSample(64, 0, 0.5)]), 64) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no samples"):
        fit_prefill([])


def test_a_correction_converges_to_the_ratio():
    correction = Correction()
    for _ in range(200):
        correction.observe(0.3, 0.1)
    assert correction.factor == pytest.approx(3.0, rel=1e-3)


def test_a_correction_bounds_outliers_and_itself():
    correction = Correction(weight=0.1, limit=8.0, outlier=2.0)
    correction.observe(1000.0, 0.001)
    assert correction.factor == pytest.approx(2.0**0.1)
    for _ in range(1000):
        correction.observe(1000.0, 0.001)
    assert correction.factor == pytest.approx(8.0)
    correction.observe(0.0, 1.0)
    correction.observe(1.0, 0.0)
    assert correction.factor == pytest.approx(8.0)
