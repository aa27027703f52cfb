import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engines.costs.linear import decode_step_s, prefill_s, serving_s
from mesh.wire.status import DecodeCost, PrefillCost

coefficient = st.floats(0, 1.0)
rising = st.lists(st.tuples(st.integers(1, 300), st.floats(0, 0.5)), max_size=6).map(
    lambda steps: tuple(
        (sum(size for size, _ in steps[: i + 1]), sum(rise for _, rise in steps[: i + 1])) for i in range(len(steps))
    )
)
prefill_costs = st.builds(
    PrefillCost, coefficient, coefficient, coefficient, coefficient, st.sampled_from([0, 1, 64, 256]), rising
)
decode_costs = st.builds(DecodeCost, coefficient, coefficient, coefficient, rising, st.just(0.0))


def test_the_formulas_of_the_wire_types():
    assert prefill_s(PrefillCost(1.0, 0.1, 0.01), 10, 20) == pytest.approx(1 + 10 * 0.1 + 0.01 * 10 * (20 + 5))
    assert decode_step_s(DecodeCost(1.0, 0.5, 0.01), 4, 100) == pytest.approx(1 + 2 + 1)
    assert decode_step_s(DecodeCost(1.0, 0.5, 0.0, (), 0.04), 4, 100) == pytest.approx(1 + 2 + 0.04 * 25)
    assert prefill_s(PrefillCost(1.0, 1.0), 0, 50) == 0.0
    assert decode_step_s(DecodeCost(1.0, 1.0), 0, 0) == 0.0


@given(st.integers(1, 2000), st.integers(0, 2000), st.integers(1, 700), rising)
def test_a_chunked_prefill_costs_as_much_as_its_chunks(new, old, chunk_tokens, table):
    whole = PrefillCost(1.0, 0.1, 0.01, 0.001, table=table)
    chunks = [(start, min(chunk_tokens, new - start)) for start in range(0, new, chunk_tokens)]
    expected = sum(prefill_s(whole, num_tokens, old + start) for start, num_tokens in chunks)
    assert prefill_s(replace(whole, chunk_tokens=chunk_tokens), new, old) == pytest.approx(expected)


@given(prefill_costs, st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 500))
def test_longer_prefills_never_cost_less(cost, new, cached, more):
    assert 0 <= prefill_s(cost, new, cached) <= prefill_s(cost, new + more, cached) * (1 + 1e-9)
    assert prefill_s(cost, new, cached) <= prefill_s(cost, new, cached + more) * (1 + 1e-9)


@given(decode_costs, st.integers(0, 500), st.integers(0, 100_000), st.integers(0, 500))
def test_larger_steps_never_cost_less(cost, num_requests, context, more):
    assert 0 <= decode_step_s(cost, num_requests, context) <= decode_step_s(cost, num_requests + more, context) + 1e-9
    assert decode_step_s(cost, num_requests, context) <= decode_step_s(cost, num_requests, context + more) + 1e-9


@pytest.mark.parametrize(
    ("num_requests", "batch_s"), [(1, 3.0), (2, 3.0), (3, 4.0), (4, 5.0), (6, 5.5), (8, 6.0), (10, 6.0 + 2 * 0.5)]
)
def test_a_table_is_interpolated(num_requests, batch_s):
    table = ((2, 3.0), (4, 5.0), (8, 6.0))
    assert decode_step_s(DecodeCost(100.0, 0.5, 0.01, table), num_requests, 100) == pytest.approx(batch_s + 1)
    assert prefill_s(PrefillCost(100.0, 0.5, table=table), num_requests) == pytest.approx(batch_s)


@given(prefill_costs, decode_costs, st.integers(0, 40), st.integers(1, 600), st.integers(0, 50))
def test_a_static_batch_is_served_in_the_time_of_its_iterations(
    prefill, decode, num_requests, prompt_tokens, num_steps
):
    decode = replace(decode, per_mean_context_token_s=0.01)
    steps = [decode_step_s(decode, num_requests, num_requests * (prompt_tokens + i + 1)) for i in range(num_steps)]
    expected = num_requests * prefill_s(prefill, prompt_tokens) + sum(steps)
    assert serving_s(prefill, decode, num_requests, prompt_tokens, num_steps) == pytest.approx(expected)
