"""Products with weights in blocks and attention in place, for every set of kernels that this processor runs."""

from functools import cache

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize
from torch import Tensor

from engines.models.files.block_kinds import KINDS, Form
from engines.torch_engine.layers.attention_kind import AttentionKind
from engines.torch_engine.layers.cpu_kernels import (
    CodeLinear,
    attend_chunk_in_place,
    attend_in_place,
    attends,
    attends_chunks,
    kernel_sets,
    packs,
    store,
)
from engines.torch_engine.layers.quantised_weights import Codes, WeightBlocks
from tests.engines.models.quantizing import quantized
from tests.engines.torch_engine.compiled import compiled
from tests.engines.torch_engine.layers.references import CODED_FORMS, any_codes, attention, held, laid_out, rounded
from tests.seeds import seeds

pytestmark = compiled
ATTENTION = [
    pytest.param(AttentionKind.plain, id="plain"),
    pytest.param(lambda dim: AttentionKind(0.1, window=20), id="window"),
    pytest.param(lambda dim: AttentionKind(0.1, window=3, softcap=2.0), id="softcap"),
]
SETS = kernel_sets()


@cache
def a_weight(kind: str, outs: int, ins: int, seed: int = 0) -> tuple[WeightBlocks, Tensor]:
    """Blocks, and the float32 values that they stand for."""
    values = np.random.default_rng(seed).normal(size=(outs, ins)).astype(np.float32)
    rows = quantized(values, gguf.GGMLQuantizationType[kind])
    stands_for = dequantize(rows, gguf.GGMLQuantizationType[kind])
    return WeightBlocks(KINDS[kind], torch.from_numpy(rows)), torch.from_numpy(stands_for.astype(np.float32))


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("kind", KINDS)
def test_codes_stand_for_what_dequantising_gives_to_the_last_bit(kernels, kind):
    num_in = 3 * KINDS[kind].num_weights
    blocks, values = a_weight(kind, 128, num_in)
    assert packs([(blocks.kind.form, blocks.num_out)])
    unit = torch.eye(num_in)
    for rows in (unit, unit[:1], unit[4:6], unit[7:10]):
        assert torch.equal(CodeLinear([blocks.codes()], kernels=kernels)(rows), (rows @ values.T))


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outs", "num_blocks"), [(64, 1), (192, 5), (64, 18)])
def test_a_product_is_that_of_the_values(kernels, kind, outs, num_blocks):
    ins = num_blocks * KINDS[kind].num_weights
    blocks, values = a_weight(kind, outs, ins)
    linear = CodeLinear([blocks.codes()], kernels=kernels)
    for num_rows in [*range(1, 9), 13, 97]:
        x = torch.randn(num_rows, ins, generator=torch.Generator().manual_seed(num_rows))
        exact = x.double() @ values.double().T
        sizes = x.double().abs() @ values.double().abs().T
        assert ((linear(x) - exact).abs() <= 1e-6 * sizes).all()


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [False, True])
def test_a_row_does_not_depend_on_the_others(kernels, kind, rounds):
    """Nor on how a batch is cut, nor on the number of threads."""
    num_in = 5 * KINDS[kind].num_weights
    blocks, _ = a_weight(kind, 128, num_in)
    linear = CodeLinear([blocks.codes()], rounds=rounds, kernels=kernels)
    x = torch.randn(210, num_in)
    alone = torch.cat([linear(row[None]) for row in x])
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for num_rows in (2, 3, 4, 5, 7, 12, 96, 110, 210):
                assert torch.equal(linear(x[:num_rows]), alone[:num_rows])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outs", "num_blocks"), [(64, 1), (192, 5)])
def test_a_product_of_rounded_inputs_is_that_of_the_values(kernels, kind, outs, num_blocks):
    ins = num_blocks * KINDS[kind].num_weights
    blocks, values = a_weight(kind, outs, ins)
    linear = CodeLinear([blocks.codes()], rounds=True, kernels=kernels)
    for num_rows in [*range(1, 10), 97, 200]:
        x = torch.randn(num_rows, ins, generator=torch.Generator().manual_seed(num_rows))
        x[0, :32] = 0.0
        exact = rounded(x) @ values.double().T
        sizes = x.double().abs() @ values.double().abs().T
        error = (linear(x) - exact).abs()
        # Where 127 times an input over the largest is as good as halfway, it may be rounded the other way.
        assert (error <= 1e-6 * sizes).double().mean() > 0.95
        assert (error <= 1e-2 * sizes).all()


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("form", CODED_FORMS)
def test_the_largest_codes_and_inputs_do_not_overflow(kernels, form):
    size = 512
    least, most = (0, 15) if form is Form.NIBBLES else (-128, 127)
    for code in (least, most):
        codes = torch.full((64, size), code, dtype=torch.int16).to(torch.int8).view(torch.uint8)
        scales = torch.ones(64, size // form.group)
        weight = Codes(form, codes, scales, torch.full_like(scales, -3.0) if form.has_minima else None)
        value = code - 3.0 * form.has_minima
        for x in (torch.ones(3, size), -torch.ones(3, size)):
            out = CodeLinear([weight], rounds=True, kernels=kernels)(x)
            torch.testing.assert_close(out, x @ torch.full((size, 64), value), rtol=1e-6, atol=1e-2)


@pytest.mark.skipif("avx2" not in SETS, reason="a processor with one set of kernels")
@pytest.mark.parametrize("form", CODED_FORMS)
@pytest.mark.parametrize(("outs", "ins"), [(64, 32), (192, 96), (128, 576), (64, 1536)])
def test_products_of_rounded_inputs_are_the_same_by_every_set_that_adds_products_in_one_rounding(form, outs, ins):
    """To the last bit: with AVX2, AVX-512 and VNNI, alone and added to a residual."""
    weight = any_codes(form, outs, ins)
    one, *others = [CodeLinear([weight], rounds=True, kernels=kernels) for kernels in SETS if kernels != "plain"]
    for num_rows in [*range(1, 20), 97, 193]:
        x = 10 * torch.randn(num_rows, ins, generator=torch.Generator().manual_seed(num_rows))
        x[0, :32] = 0.0
        x[-1, 5] = 1e4
        expected, sums = one(x), torch.ones(num_rows, outs)
        one.add_to(sums, x)
        for other in others:
            assert torch.equal(other(x), expected)
            residual = torch.ones(num_rows, outs)
            other.add_to(residual, x)
            assert torch.equal(residual, sums)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("form", CODED_FORMS)
def test_inputs_that_are_not_numbers_show(kernels, form):
    """In their own row, and in no other."""
    linear = CodeLinear([any_codes(form, 64, 64)], rounds=True, kernels=kernels)
    for value in (float("nan"), float("inf")):
        x = torch.ones(3, 64)
        whole = linear(x)
        x[1, 40] = value
        out = linear(x)
        assert out[1].isnan().all()
        assert torch.equal(out[::2], whole[::2])


@pytest.mark.parametrize("kernels", SETS)
def test_bias_and_residual(kernels):
    blocks, values = a_weight("Q4_1", 64, 64)
    bias = torch.randn(64)
    for num_rows in (1, 5):
        x, residual = torch.randn(num_rows, 64), torch.randn(num_rows, 64)
        linear = CodeLinear([blocks.codes()], bias, kernels=kernels)
        torch.testing.assert_close(linear(x), x @ values.T + bias)
        whole = residual + x @ values.T + bias
        linear.add_to(residual, x)
        torch.testing.assert_close(residual, whole)


@pytest.mark.parametrize("kernels", SETS)
def test_rows_that_are_not_side_by_side(kernels):
    blocks, values = a_weight("Q8_0", 64, 64)
    x = torch.randn(7, 128)[:, ::2]
    torch.testing.assert_close(CodeLinear([blocks.codes()], kernels=kernels)(x), x @ values.T)


@pytest.mark.parametrize("kernels", SETS)
def test_weights_one_after_the_other_compute_what_each_computes(kernels):
    """Of one kind, of one form, of several forms; and they add to a residual and a bias."""
    kinds = ["Q4_K", "Q4_1", "Q6_K", "Q8_0", "Q5_K"]
    weights = [a_weight(kind, 64 * (number + 1), 256, number) for number, kind in enumerate(kinds)]
    parts, values = [blocks.codes() for blocks, _ in weights], [values for _, values in weights]
    bias = torch.randn(sum(len(value) for value in values))
    linear = CodeLinear(parts, bias, kernels=kernels)
    for num_rows in (1, 5, 100):
        x = torch.randn(num_rows, 256)
        alone = torch.cat([CodeLinear([part], kernels=kernels)(x) for part in parts], dim=1)
        torch.testing.assert_close(linear(x), alone + bias, rtol=1e-5, atol=1e-4)
        assert torch.equal(CodeLinear(parts, kernels=kernels)(x), alone)
        residual = torch.randn(num_rows, len(bias))
        whole = residual + x @ torch.cat(values).T + bias
        linear.add_to(residual, x)
        torch.testing.assert_close(residual, whole, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize(("outs", "ins"), [(64, 32), (192, 96), (128, 576)])
def test_a_product_with_weights_in_bfloat16_is_that_of_their_values_whatever_other_rows_there_are(kernels, outs, ins):
    weight = any_codes(Form.HALVES, outs, ins)
    values, linear = weight.codes.float(), CodeLinear([weight], kernels=kernels)
    assert torch.equal(linear(torch.eye(ins)), values.T)
    x = torch.randn(97, ins, generator=torch.Generator().manual_seed(1))
    out, sizes = linear(x), x.double().abs() @ values.double().abs().T
    assert ((out - x.double() @ values.double().T).abs() <= 1e-6 * sizes).all()
    for num_rows in (1, 2, 3, 4, 5, 7, 12):
        assert torch.equal(linear(x[:num_rows]), out[:num_rows])


def test_inputs_are_not_rounded_for_weights_in_bfloat16():
    with pytest.raises(ValueError, match="inputs are not rounded for weights of form 4"):
        CodeLinear([any_codes(Form.HALVES, 64, 32)], rounds=True)(torch.ones(1, 32))


def test_what_is_taken():
    assert packs([(Form.NIBBLES, 32), (Form.NIBBLES, 96)])
    assert not packs([(Form.NIBBLES, 32), (Form.BYTES, 32)])  # each is a run of its own


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "dim"), [(9, 3, 64), (4, 4, 16), (8, 1, 128), (10, 2, 80)])
@pytest.mark.parametrize("size", [1, 16])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("of_kind", ATTENTION)
def test_decodes_attend_to_what_lies_in_their_blocks(kernels, num_heads, num_kv_heads, dim, size, threads, of_kind):
    kind = of_kind(dim)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in seeds(1):
            generator = torch.Generator().manual_seed(seed)
            lengths = [1, size, size + 1, 3 * size + 2, 61]
            rows, tables, kv = laid_out(lengths, num_kv_heads, size, dim, generator)
            heads = torch.randn(len(lengths), num_heads + 3, dim, generator=generator) * 3
            queries = heads[:, :num_heads]
            out = attend_in_place(queries, rows, tables, torch.tensor(lengths), num_kv_heads, kind, kernels)
            expected = torch.cat([attention(query[None], *own, kind) for query, own in zip(queries, kv, strict=True)])
            torch.testing.assert_close(out, expected, rtol=2e-5, atol=1e-5)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "dim"), [(9, 3, 64), (4, 2, 128), (2, 2, 64)])
@pytest.mark.parametrize("size", [1, 16])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("of_kind", ATTENTION)
def test_a_chunk_sees_what_came_before_and_itself(kernels, num_heads, num_kv_heads, dim, size, threads, of_kind):
    kind = of_kind(dim)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for num_before, num_new in [(0, 2), (15, 3), (61, 70)]:
            generator = torch.Generator().manual_seed(num_new)
            length = num_before + num_new
            rows, [table], [(keys, values)] = laid_out([length], num_kv_heads, size, dim, generator)
            heads = torch.randn(num_new, num_heads + 3, dim, generator=generator) * 3
            queries = heads[:, :num_heads]
            out = attend_chunk_in_place(queries, rows, table, num_before, num_kv_heads, kind, kernels)
            torch.testing.assert_close(out, attention(queries, keys, values, kind), rtol=2e-5, atol=1e-5)
            cut = num_new // 2  # in two chunks the same, to the last bit
            parts = [(queries[:cut], num_before), (queries[cut:], num_before + cut)]
            alone = [attend_chunk_in_place(part, rows, table, n, num_kv_heads, kind, kernels) for part, n in parts]
            assert torch.equal(torch.cat(alone), out)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("of_kind", ATTENTION)
def test_kv_of_fewer_bits_is_attended_to_as_what_it_stands_for(kernels, dtype, of_kind):
    """By decodes, and by chunks, which cut in two give the same to the last bit."""
    kind, generator, lengths = of_kind(64), torch.Generator().manual_seed(1), [1, 17, 131]
    rows, tables, kv = laid_out(lengths, 3, 16, 64, generator, dtype)
    queries = torch.randn(3, 9, 64, generator=generator) * 3
    out = attend_in_place(queries, rows, tables, torch.tensor(lengths), 3, kind, kernels)
    expected = torch.cat([attention(query[None], *own, kind) for query, own in zip(queries, kv, strict=True)])
    torch.testing.assert_close(out, expected, rtol=2e-5, atol=1e-5)
    chunk = torch.randn(70, 9, 64, generator=generator) * 3
    out = attend_chunk_in_place(chunk, rows, tables[2], 61, 3, kind, kernels)
    torch.testing.assert_close(out, attention(chunk, *kv[2], kind), rtol=2e-5, atol=1e-5)
    parts = [(chunk[:35], 61), (chunk[35:], 96)]
    alone = [attend_chunk_in_place(part, rows, tables[2], before, 3, kind, kernels) for part, before in parts]
    assert torch.equal(torch.cat(alone), out)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_kv_is_stored_as_the_dtype_has_it(kernels, dtype):
    heads = torch.randn(5, 9, 80, generator=torch.Generator().manual_seed(1))
    heads[0, 8] = 0.0
    kv, index = heads[:, 3:], torch.randperm(40)[:30]
    expected, _ = held(kv.reshape(30, 80), dtype)
    tokens = torch.zeros(40, expected.shape[1], dtype=dtype)
    store(kv, tokens, index, kernels)
    lies = tokens[index]
    if dtype is not torch.uint8:
        assert torch.equal(lies, expected)
    else:
        assert torch.equal(lies[:, 80:], expected[:, 80:])
        assert (lies[:, :80].view(torch.int8) - expected[:, :80].view(torch.int8)).abs().max() <= 1  # halfway
        assert (lies[:, :80] == expected[:, :80]).double().mean() > 0.99
    assert not tokens.float().sum(dim=1)[[row for row in range(40) if row not in index.tolist()]].any()


@pytest.mark.parametrize("kernels", SETS)
def test_numbers_that_are_none_stay_none_in_bfloat16(kernels):
    kv = torch.full((1, 1, 16), torch.nan)
    kv[0, 0, 1] = torch.inf
    tokens = torch.zeros(1, 16, dtype=torch.bfloat16)
    store(kv, tokens, torch.tensor([0]), kernels)
    torch.testing.assert_close(tokens, kv[0].bfloat16(), equal_nan=True)


@pytest.mark.parametrize("kernels", SETS)
def test_scores_far_apart_and_very_large(kernels):
    """The softmax is that of differences: nothing overflows, and what is far below counts for nothing."""
    rows = torch.zeros(2, 16, 16)
    rows[0, :, 0] = torch.linspace(-4000.0, 4000.0, 16)
    rows[1] = torch.arange(16.0)[:, None]
    out = attend_in_place(
        torch.full((1, 1, 16), 100.0),
        rows,
        torch.zeros(1, 1, dtype=torch.long),
        torch.tensor([16]),
        1,
        AttentionKind.plain(16),
        kernels,
    )
    assert torch.equal(out, torch.full((1, 16), 15.0))


def test_what_attention_in_place_takes():
    assert attends(torch.float32, 64)
    assert not attends(torch.float32, 40)
    assert not attends(torch.bfloat16, 64)
    assert attends_chunks(torch.float32, 128)
    assert not attends_chunks(torch.float32, 80)
