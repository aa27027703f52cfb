"""The kernels for ARM's 64-bit processors, on emulated ones with products of bytes (SDOT) and without."""

import subprocess
from itertools import product

import pytest
import torch
from torch.nn import functional

from engines.models.files.block_kinds import Form
from engines.torch_engine.layers.attention_kind import AttentionKind
from engines.torch_engine.layers.cpu_kernels import CodeLinear, kernel_sets
from engines.torch_engine.layers.norm import rms_norm
from tests.engines.torch_engine.layers.emulated import EMULATOR, EmulatedKernels, compile_for_arm, emulated
from tests.engines.torch_engine.layers.references import (
    CODED_FORMS,
    any_codes,
    attention,
    held,
    laid_out,
    rounded,
    row_inputs,
    turned,
    values_of,
)

pytestmark = [emulated, pytest.mark.timeout(600)]  # the compiler takes seconds, an emulator that waits its turn more
PROCESSORS = {"neon_dot": "max", "neon": "cortex-a57"}
KINDS = [AttentionKind.plain(64), AttentionKind(0.1, window=20), AttentionKind(0.1, window=3, softcap=2.0)]

KV_DTYPES = [torch.float32, torch.bfloat16, torch.uint8]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compile_for_arm(tmp_path_factory.mktemp("arm"))


@pytest.fixture(params=PROCESSORS)
def kernels(request, program):
    return EmulatedKernels(program, PROCESSORS[request.param], request.param)


@pytest.mark.parametrize(
    ("processor", "names"), [("max", ["neon_dot", "neon", "plain"]), ("cortex-a57", ["neon", "plain"])]
)
def test_a_processor_has_the_kernels_that_it_runs(program, processor, names):
    found = subprocess.run([EMULATOR, "-cpu", processor, str(program)], capture_output=True, text=True, check=True)
    assert found.stdout.split() == names


@pytest.mark.parametrize(("form", "rounds"), [(Form.HALVES, False), *product(CODED_FORMS, [False, True])])
def test_products_are_those_of_avx2_to_the_last_bit(kernels, form, rounds):
    """And those of the values; added to a residual, too; of one row and of more than are computed at a time."""
    weight = any_codes(form, 128, 96)
    for rows in (1, 3, 98):
        x = 10 * torch.randn(rows, 96, generator=torch.Generator().manual_seed(rows))
        x[0, :32] = 0.0
        out = kernels.product(weight, x, torch.full((rows, 128), torch.nan), rounds=rounds)
        added = kernels.product(weight, x, torch.ones(rows, 128), rounds=rounds, adds=True)
        values = values_of(weight)
        sizes = x.double().abs() @ values.abs().T
        error = (out - (rounded(x) if rounds else x.double()) @ values.T).abs()
        assert (error <= 2e-6 * sizes).double().mean() > 0.95  # 127 times an input may be as good as halfway
        assert (error <= (1e-2 if rounds else 2e-6) * sizes).all()
        if "avx2" in kernel_sets():
            linear, residual = CodeLinear([weight], rounds=rounds, kernels="avx2"), torch.ones(rows, 128)
            linear.add_to(residual, x)
            assert torch.equal(out, linear(x))
            assert torch.equal(added, residual)


@pytest.mark.parametrize("form", CODED_FORMS)
@pytest.mark.parametrize("code", [-128, 127])
def test_the_largest_codes_and_inputs_do_not_overflow(kernels, form, code):
    weight = any_codes(form, 64, 64)
    weight.codes.fill_(15 if form is Form.NIBBLES else code % 256)
    weight.scales.fill_(1.0)
    value = 15 if form is Form.NIBBLES else code
    for x in (torch.ones(3, 64), -torch.ones(3, 64)):
        out = kernels.product(weight, x, torch.zeros(3, 64), rounds=True)
        minima = 0 if weight.minima is None else x @ weight.minima.repeat_interleave(form.group, 1).T
        torch.testing.assert_close(out, x @ torch.full((64, 64), float(value)) + minima, rtol=1e-6, atol=1e-2)


@pytest.mark.parametrize(("kind", "dtype"), [*zip(KINDS, KV_DTYPES, strict=True), (KINDS[0], torch.uint8)])
def test_decodes_and_chunks_attend_to_what_lies_in_their_blocks(kernels, kind, dtype):
    generator = torch.Generator().manual_seed(1)
    lengths = [1, 17, 61]
    rows, tables, kv = laid_out(lengths, 2, 16, 64, generator, dtype)
    queries = torch.randn(3, 6, 64, generator=generator) * 3
    out = kernels.attend(queries, rows, tables, torch.tensor(lengths), kind)
    expected = torch.cat([attention(query[None], *own, kind) for query, own in zip(queries, kv, strict=True)])
    torch.testing.assert_close(out, expected, rtol=2e-5, atol=1e-5)
    chunk = torch.randn(50, 6, 64, generator=generator) * 3
    out = kernels.attend_chunk(chunk, rows, tables[2], 11, kind)
    torch.testing.assert_close(out, attention(chunk, *kv[2], kind), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_kv_is_stored_as_the_dtype_has_it(kernels, dtype):
    kv = torch.randn(3, 4, 64, generator=torch.Generator().manual_seed(1))
    expected, _ = held(kv.view(12, 64), dtype)
    stored = kernels.store(kv, torch.zeros_like(expected), torch.arange(11, -1, -1)).flip(0)
    if dtype is torch.uint8:
        assert (stored == expected).double().mean() > 0.98  # 127 times an element may be as good as halfway
    else:
        assert torch.equal(stored, expected)


def test_gates(kernels):
    x = torch.randn(5, 192, generator=torch.Generator().manual_seed(1)) * 8
    x[0, :4] = torch.tensor([-200.0, 200.0, 0.0, -88.0])
    expected = functional.silu(x[:, :96].double()) * x[:, 96:].double()
    torch.testing.assert_close(kernels.gated(x), expected.float(), rtol=1e-6, atol=1e-30)


def test_rows_are_normalised_and_heads_turned(kernels):
    x, weight, heads, angles = row_inputs(5)
    torch.testing.assert_close(kernels.normalised(x, weight, 1e-5), rms_norm(x, weight, torch.tensor(1e-5)))
    torch.testing.assert_close(kernels.turned(heads, angles), turned(heads, angles))
