"""Presets composed from kernels whose times are made up."""

import tomllib
from dataclasses import replace

import pytest

from engines.costs.kernels.__main__ import preset_text
from engines.costs.kernels.compose import CALL_MS, Composed, Composer, KernelModel, MeasuredExperts, Mixture, compose
from engines.costs.kernels.tables import ExpertKernel, Grid, Heads, Kernels
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.scaling import ModelShape
from mesh.wire.status import DecodeCost, PrefillCost

SHAPE = ModelShape(10_000, 4, 64, 128, 8, 2, 8, 1000)
SIZES = [2**power for power in range(12)]
EXPERTS_MS = 7.0
MEMORY_BYTES_PER_S = 3e12


def attention(per_pair: float) -> dict[int, float]:
    return {size: per_pair * size * size / 2 for size in SIZES}


def decodes(per_token: float) -> dict[tuple[int, int], float]:
    return {(number, context): per_token * number * context for number in SIZES[:9] for context in SIZES}


def kernels() -> Kernels:
    """Products take 1 ms and 0.01 ms a row, whatever their sizes; half of the heads for two devices."""
    product = Grid(
        {(rows, one, two): 1.0 + 0.01 * rows for rows in SIZES for one in (1, 10_000) for two in (1, 10_000)}
    )
    whole, half = Heads(8, 2, 8), Heads(4, 1, 8)
    return Kernels(
        gemm={"bfloat16": product, "fp8": product},
        context={whole: attention(1e-4), half: attention(5e-5), replace(whole, window=16): attention(0.0)},
        generation={whole: decodes(1e-3), half: decodes(5e-4), replace(whole, window=16): decodes(0.0)},
        all_reduce={2: Grid({(1,): 0.5, (2**20,): 0.5})},
        experts={
            ExpertKernel("fp4", 64, 128, 8, 2, sharing=1, spread=spread): Grid({(1,): EXPERTS_MS, (2048,): EXPERTS_MS})
            for spread in (1, 2)
        },
    )


def composed(model: KernelModel, num_devices: int = 1) -> Composed:
    return compose(Composer(kernels(), model, num_devices, MEMORY_BYTES_PER_S))


def step_ms(of: Composed, number: int = 1, context: int = 64) -> float:
    return 1e3 * decode_step_s(of.decode, number, number * context)


def test_an_iteration_takes_its_layers_kernels_and_the_last_product():
    plain = composed(KernelModel(SHAPE))
    assert step_ms(plain) == pytest.approx(4 * (4 * 1.01 + 1e-3 * 64) + 1.01, rel=0.01)
    prompt_ms = 4 * (4 * (1 + 0.01 * 512) + 1e-4 * 512 * 256) + 1.01
    assert 1e3 * prefill_s(plain.prefill, 512) == pytest.approx(prompt_ms, rel=0.02)
    assert max(plain.held_out_p90) < 0.05


def test_a_chunk_pays_attention_to_what_was_before_it():
    plain = composed(KernelModel(SHAPE)).prefill
    added_ms = 1e3 * (prefill_s(plain, 512, 1024) - prefill_s(plain, 512))
    assert added_ms == pytest.approx(4 * 1e-4 * 512 * 1024, rel=0.05)


def test_two_devices_exchange_what_they_computed():
    added_ms = step_ms(composed(KernelModel(SHAPE), 2)) - step_ms(composed(KernelModel(SHAPE)))
    assert added_ms == pytest.approx(4 * (2 * 0.5 - 5e-4 * 64), rel=0.02)


def test_experts_take_the_place_of_two_products_and_another_one_chooses_them():
    mixture = composed(KernelModel(SHAPE, mixture=Mixture(8, 2, "fp4")))
    assert step_ms(mixture) - step_ms(composed(KernelModel(SHAPE))) == pytest.approx(4 * (EXPERTS_MS - 1.01), rel=0.02)


def test_experts_may_be_spread_over_devices():
    spread = KernelModel(SHAPE, mixture=Mixture(8, 2, "fp4", is_spread=True))
    assert step_ms(composed(spread, 2)) == pytest.approx(4 * (3 * 1.01 + EXPERTS_MS + 2 * 0.5 + 0.032) + 1.01, rel=0.02)


def test_experts_that_were_not_measured_take_the_time_of_others():
    """Twice as many experts were measured, of the same sizes: as for twice the tokens, and half of it."""
    like = MeasuredExperts(64, 128, 16, 2, call_ms=0.05, fill=(64, 128))
    of_others = ExpertKernel("fp4", 64, 128, 16, 2, sharing=1)
    measured = Grid({(rows,): 0.05 + 0.002 * rows for rows in SIZES})
    composer = Composer(
        replace(kernels(), experts={of_others: measured}),
        KernelModel(SHAPE, mixture=Mixture(8, 2, "fp4", like=like)),
        1,
        MEMORY_BYTES_PER_S,
    )
    plain = composed(KernelModel(SHAPE))
    assert step_ms(compose(composer), 32) - step_ms(plain, 32) == pytest.approx(4 * (CALL_MS + 0.064 - 1.32), rel=0.03)


def test_rows_that_fill_up_experts_are_computed():
    like = MeasuredExperts(64, 128, 8, 2, call_ms=0.05, fill=(128, 256))
    of_others = ExpertKernel("fp4", 64, 128, 8, 2, sharing=1)
    filled = Composer(
        replace(kernels(), experts={of_others: Grid({(1,): 1.05, (2048,): 1.05})}),
        KernelModel(SHAPE, mixture=Mixture(8, 2, "fp4", like=like)),
        1,
        MEMORY_BYTES_PER_S,
    )
    added_ms = step_ms(compose(filled)) - step_ms(composed(KernelModel(SHAPE)))
    assert added_ms == pytest.approx(4 * (CALL_MS + 4 * 1.0 - 1.01), rel=0.02)


def test_every_other_layer_has_a_window():
    plain, windowed = composed(KernelModel(SHAPE)), composed(KernelModel(SHAPE, window=16))
    assert windowed.decode.per_context_token_s == pytest.approx(plain.decode.per_context_token_s / 2, rel=0.05)


def test_element_wise_kernels_take_the_time_of_their_bytes():
    slow, fast = (compose(Composer(kernels(), KernelModel(SHAPE), 1, speed)) for speed in (1e9, 1e12))
    element_bytes = 4 * 2 * (8 * 64 + 3 * 128 + 2 * (8 + 2 * 2) * 8)
    assert step_ms(slow, 256) - step_ms(fast, 256) == pytest.approx(256 * element_bytes / (0.55 * 1e9) * 1e3, rel=0.02)


def test_a_preset_is_printed_as_the_file_has_it():
    costs = Composed(
        PrefillCost(0.001, 2e-5, table=((1, 0.001), (8, 0.002))), DecodeCost(0.003, 1e-5, 1e-8), (0.05, 0.1)
    )
    [preset] = tomllib.loads(preset_text("h100-x-tp2", "h100", "x", 2, "kernels", costs))["profiles"].values()
    assert preset["prefill_ms"] == {"fixed": 1.0, "per_token": 0.02, "table": [[1, 1.0], [8, 2.0]]}
    assert preset["decode_ms"] == {"fixed": 3.0, "per_request": 0.01, "per_context_token": 1e-5}
    assert (preset["tensor_parallel"], preset["held_out_p90"]) == (2, [0.05, 0.1])
