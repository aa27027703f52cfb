"""Equation 5 on synthetic devices: what was made by it is found by it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.scaling import Known, ModelShape, Parallel, scale_decode, scale_prefill
from mesh.wire.status import DecodeCost, PrefillCost

SMALL = ModelShape(7_000_000_000, 32, 4096, 11008, 32, 32, 128, 32000)
LARGE = ModelShape(70_000_000_000, 80, 8192, 28672, 64, 8, 128, 32000)
MIDDLE = ModelShape(20_000_000_000, 48, 6144, 16384, 48, 8, 128, 92544)
SIZES = (1, 128, 4096)
KNOWN = [(SMALL, 1), (SMALL, 2), (SMALL, 4), (LARGE, 2), (LARGE, 4), (LARGE, 8)]
share = st.floats(1e-14, 1e-13)


def made(parallel: Parallel, compute: float, all_reduce: float, launch: float) -> Known:
    """A device that obeys the equation."""
    model, devices = parallel.model, parallel.num_devices
    exchanged = model.num_layers * model.hidden_size * (devices - 1) / devices
    table = tuple(
        (
            size,
            compute * (1 + size / 100) * model.num_parameters / devices
            + all_reduce * size * exchanged
            + launch * model.num_layers,
        )
        for size in SIZES
    )
    heads = model.num_layers * model.num_heads * model.head_dim / devices
    kv_read = model.kv_bytes_per_token / devices
    slope = (table[-1][1] - table[0][1]) / (SIZES[-1] - SIZES[0])
    return Known(
        parallel,
        PrefillCost(0.0, slope, 1e-14 * heads, 5e-13 * kv_read, table=table),
        DecodeCost(0.0, slope, 6e-13 * kv_read, table),
    )


@given(share, st.floats(0, 1e-11), st.floats(0, 1e-4), st.sampled_from([1, 2, 4, 8]))
def test_a_device_that_obeys_the_equation_is_found(compute: float, all_reduce: float, launch: float, devices: int):
    known = [made(Parallel(model, n), compute, all_reduce, launch) for model, n in KNOWN]
    wanted = Parallel(MIDDLE, devices)
    truth = made(wanted, compute, all_reduce, launch)
    prefill, decode = scale_prefill(known, wanted), scale_decode(known, wanted)
    for new, cached in ((1, 0), (100, 0), (4096, 0), (512, 8192), (32768, 0)):
        assert prefill_s(prefill, new, cached) == pytest.approx(prefill_s(truth.prefill, new, cached), rel=0.02)
    for size, context in ((1, 100), (64, 64_000), (256, 100_000)):
        assert decode_step_s(decode, size, context) == pytest.approx(
            decode_step_s(truth.decode, size, context), rel=0.02
        )


def test_more_devices_take_less_time_each_less_than_the_last():
    known = [made(Parallel(model, n), 5e-14, 1e-12, 1e-5) for model, n in KNOWN]
    times_s = [prefill_s(scale_prefill(known, Parallel(MIDDLE, n)), 2048) for n in (1, 2, 4, 8)]
    assert times_s == sorted(times_s, reverse=True)
    gains = [before / after for before, after in pairwise(times_s)]
    assert all(1 < gain < 2 for gain in gains)
    assert gains == sorted(gains, reverse=True)


def test_nothing_known_is_an_error():
    with pytest.raises(ValueError, match="nothing is known"):
        scale_prefill([], Parallel(MIDDLE, 2))


def test_more_devices_than_kv_heads_hold_copies():
    few = ModelShape(10_000, 4, 64, 128, 8, 2, 8, 1000)
    assert [Parallel(few, n).kv_bytes_per_token for n in (1, 2, 4)] == [256, 256, 512]


def test_narrow_kv_takes_half_the_bytes():
    assert ModelShape(10_000, 4, 64, 128, 8, 2, 8, 1000, kv_bits=8).kv_bytes_per_token == 128
