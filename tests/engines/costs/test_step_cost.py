import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.costs.linear import decode_step_s, prefill_s, requests_s
from engines.costs.step_cost import MixedCost, StepCost, StepLoad, is_decode
from engines.scheduling.batch import Batch, Chunk, Draw
from mesh.wire.requests import Sampling
from mesh.wire.status import DecodeCost, PrefillCost

COST = StepCost(PrefillCost(0.01, 1e-3, 1e-6, 1e-5), DecodeCost(0.02, 2e-3, 3e-6))
SAMPLING = Sampling(max_tokens=4, seed=0)


def decode(context: int) -> Chunk:
    draw = Draw(SAMPLING, [1] * context, context - 1, context)
    return Chunk("d", [1], context - 1, range(context), draw)


def prefill(new: int, before: int) -> Chunk:
    return Chunk("p", [1] * new, before, range(before + new))


def test_pure_batches_cost_what_the_cost_models_say():
    assert COST.elapsed_s(Batch("s", [prefill(30, 12)])) == pytest.approx(prefill_s(COST.prefill, 30, 12))
    assert COST.elapsed_s(Batch("s", [decode(10), decode(90)])) == pytest.approx(decode_step_s(COST.decode, 2, 100))


def test_a_decode_beside_a_prompt_is_a_row_more_and_its_attention():
    both = prefill_s(COST.prefill, 30, 12) + 1e-3 + 10 * 3e-6
    assert COST.elapsed_s(Batch("s", [decode(10), prefill(30, 12)])) == pytest.approx(both)


def test_decodes_beside_a_short_prompt_take_what_they_take_alone():
    both = decode_step_s(COST.decode, 1, 10) + 1e-6 * 1 * (12 + 0.5) + 1e-5 * 12
    assert COST.elapsed_s(Batch("s", [decode(10), prefill(1, 12)])) == pytest.approx(both)


def test_what_was_measured_of_mixed_iterations_counts():
    cost = StepCost(COST.prefill, COST.decode, MixedCost(0.005, 7e-6, 0.009))
    alone = prefill_s(COST.prefill, 30, 12)
    assert cost.elapsed_s(Batch("s", [decode(10), prefill(30, 12)])) == pytest.approx(alone + 0.005 + 10 * 7e-6)
    both = prefill_s(COST.prefill, 50) - COST.prefill.per_token_context_s * 50 * 25 + 0.009
    attention = COST.prefill.per_token_context_s * (30 * 15 + 20 * 10)
    assert cost.elapsed_s(Batch("s", [prefill(30, 0), prefill(20, 0)])) == pytest.approx(both + attention)


chunks = st.lists(st.tuples(st.integers(1, 600), st.integers(0, 600)), max_size=3)
costs = st.builds(
    StepCost,
    st.builds(PrefillCost, *[st.floats(0, 1)] * 4),
    st.builds(DecodeCost, *[st.floats(0, 1)] * 3),
    st.none() | st.builds(MixedCost, *[st.floats(0, 1)] * 3),
)


@given(costs, chunks, st.integers(1, 50), st.integers(50, 5000))
def test_more_work_never_takes_less_and_decodes_cost_at_least_their_products(
    cost: StepCost, chunks: list[tuple[int, int]], num_decodes: int, context: int
):
    prompts, both = sum(cost.parts(StepLoad(chunks, 0, 0))), sum(cost.parts(StepLoad(chunks, num_decodes, context)))
    more = sum(cost.parts(StepLoad(chunks, num_decodes + 1, context + 100)))
    assert 0 <= prompts <= both * (1 + 1e-9)
    assert both <= more * (1 + 1e-9)
    assert both >= (1 - 1e-9) * requests_s(cost.decode, num_decodes)


def test_the_last_token_of_a_prompt_is_not_a_decode():
    assert is_decode(decode(5))
    assert not is_decode(Chunk("p", [1], 4, range(5), Draw(SAMPLING, [1] * 5, 5, 5)))
    assert not is_decode(prefill(1, 4))
