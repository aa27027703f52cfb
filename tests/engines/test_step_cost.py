import pytest

from engines.batch import Batch, Chunk, Draw
from engines.costs import decode_step_s, prefill_s
from engines.step_cost import StepCost, is_decode
from mesh.messages import DecodeCost, PrefillCost, Sampling

COST = StepCost(PrefillCost(0.01, 1e-3, 1e-6, 1e-5), DecodeCost(0.02, 2e-3, 3e-6))
SAMPLING = Sampling(max_tokens=4, seed=0)


def decode(context: int) -> Chunk:
    draw = Draw(SAMPLING, [1] * (context - 1), [1])
    return Chunk("d", [1], context - 1, range(context), draw)


def prefill(new: int, before: int) -> Chunk:
    return Chunk("p", [1] * new, before, range(before + new))


def test_pure_batches_cost_what_the_cost_models_say() -> None:
    assert COST.elapsed_s(Batch("s", [prefill(30, 12)])) == pytest.approx(prefill_s(COST.prefill, 30, 12))
    assert COST.elapsed_s(Batch("s", [decode(10), decode(90)])) == pytest.approx(decode_step_s(COST.decode, 2, 100))


def test_a_mixed_batch_pays_the_larger_fixed_cost_once() -> None:
    both = prefill_s(COST.prefill, 30, 12) + decode_step_s(COST.decode, 1, 10) - min(0.01, 0.02)
    assert COST.elapsed_s(Batch("s", [decode(10), prefill(30, 12)])) == pytest.approx(both)


def test_the_last_token_of_a_prompt_is_not_a_decode() -> None:
    assert is_decode(decode(5))
    assert not is_decode(Chunk("p", [1], 4, range(5), Draw(SAMPLING, [1] * 5, [])))
    assert not is_decode(prefill(1, 4))
