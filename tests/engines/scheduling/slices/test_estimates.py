"""What a slice of a static batch costs."""

from random import Random

import pytest
from msgspec.structs import replace

from engines.costs.linear import decode_step_s
from engines.costs.step_cost import StepCost, StepLoad
from engines.scheduling.slices.estimates import SliceEstimator
from mesh.wire.status import DecodeCost, PrefillCost
from tests.seeds import each_seed

P1, P4, D1, D2, D3, D4 = 2e-4, 0.02, 3e-7, 1e-4, 4e-7, 0.018
LINEAR = SliceEstimator(PrefillCost(P4, P1), DecodeCost(D4, D2, D1, (), D3), 60_000, 128)


def drawn_costs(random):
    """With and without tables, chunks and a quadratic term."""

    def table(sizes):
        rising_s = 0.01
        points = []
        for size in sizes:
            rising_s += random.uniform(0, 0.01)
            points.append((size, rising_s))
        return tuple(points)

    prefill = PrefillCost(0.02, 1e-4, random.choice([0.0, 4e-9]), 0.0, random.choice([0, 0, 300]))
    decode = DecodeCost(0.02, 1e-4, 5e-7, (), random.choice([0.0, 3e-7]))
    if random.random() < 0.5:
        prefill = replace(prefill, table=table([1, 40, 700, 3000]))
    if random.random() < 0.5:
        decode = replace(decode, table=table([1, 3, 8, 20]))
    return prefill, decode


def drawn_estimator(seed):
    random = Random(seed)
    return SliceEstimator(*drawn_costs(random), random.randint(300, 9000), random.randint(1, 200))


@pytest.mark.parametrize(("num", "length"), [(1, 1), (12, 700), (28, 1024)])
def test_linear_costs_give_the_papers_equations(num, length):
    prefill_s = P1 * num * length + P4
    contexts = [length + step for step in range(1, 129)]
    decode_s = sum(D1 * num * context + D2 * num + D3 * context + D4 for context in contexts)
    assert LINEAR.serving_s(num, length) == pytest.approx(prefill_s + decode_s)


@each_seed(range(30))
def test_it_is_the_sum_over_the_padded_iterations(seed):
    random = Random(seed)
    prefill, decode = drawn_costs(random)
    prefill = replace(prefill, chunk_tokens=0)
    estimator = SliceEstimator(prefill, decode, 10**6, random.randint(1, 60))
    num, length = random.randint(1, 40), random.randint(1, 300)
    prompts_s = sum(StepCost(prefill, decode).parts(StepLoad([(length, 0)] * num, 0, 0)))
    steps = range(1, estimator.slice_tokens + 1)
    decodes_s = sum(decode_step_s(decode, num, num * (length + step)) for step in steps)
    assert estimator.serving_s(num, length) == pytest.approx(prompts_s + decodes_s)


@each_seed(range(60))
def test_columns_hold_what_single_predictions_say(seed):
    estimator = drawn_estimator(seed)
    for length in Random(seed).sample(range(1, 9000), 20):
        most = estimator.most_requests(length)
        column = estimator.column(length, most)
        assert list(column) == pytest.approx([estimator.serving_s(1 + index, length) for index in range(most)])


@each_seed(range(30))
def test_no_batch_fills_more_than_zeta_of_the_memory(seed):
    random = Random(seed)
    num_slots, tokens = random.randint(300, 90_000), random.randint(1, 1024)
    estimator = SliceEstimator(PrefillCost(0, 1), DecodeCost(0, 1), num_slots, tokens, zeta=0.9)
    for length in range(1, 2048, 61):
        most = estimator.most_requests(length)
        assert most == 1 or most * (length + tokens) <= 0.9 * num_slots
        assert (most + 1) * (length + tokens) > int(0.9 * num_slots)
