"""Norms, rotations and gates by the kernels, for every set that this processor runs, beside what torch computes."""

import pytest
import torch
from torch.nn import functional

from engines.torch_engine.layers.cpu_kernels import gated, gates, kernel_sets, normalised, turn
from engines.torch_engine.layers.norm import RmsNorm, rms_norm
from engines.torch_engine.layers.rotary import rotate
from tests.engines.torch_engine.compiled import compiled
from tests.engines.torch_engine.layers.references import row_inputs, turned

pytestmark = compiled
SETS = kernel_sets()


@pytest.mark.parametrize("kernels", SETS)
def test_gates(kernels):
    x = torch.randn(5, 192, generator=torch.Generator().manual_seed(1)) * 8
    x[0, :4] = torch.tensor([-200.0, 200.0, 0.0, -88.0])
    expected = functional.silu(x[:, :96].double()) * x[:, 96:].double()
    torch.testing.assert_close(gated(x, kernels), expected.float(), rtol=1e-6, atol=1e-30)
    assert gates(x)
    assert not gates(x[:, :40])
    assert not gates(x.bfloat16())


@pytest.mark.parametrize("kernels", SETS)
def test_rows_are_normalised(kernels):
    x, weight, _, _ = row_inputs(5)
    x[1] = 0.0
    exact = functional.rms_norm(x.double(), (96,), weight.double(), 1e-5).float()
    out = normalised(x, weight, 1e-5, kernels)
    torch.testing.assert_close(out, exact, rtol=1e-6, atol=1e-9)
    assert torch.equal(normalised(x[2:3], weight, 1e-5, kernels), out[2:3])


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("num_pairs", [16, 8])
def test_heads_are_turned_in_place_and_what_is_not_rotated_stays(kernels, num_pairs):
    _, _, heads, angles = row_inputs(5, num_pairs)
    everything = torch.cat([heads, torch.ones(5, 2, 32)], dim=1)  # values follow queries and keys
    turn(everything[:, :3], angles, kernels)
    torch.testing.assert_close(everything[:, :3], turned(heads, angles))
    assert torch.equal(everything[:, 3:], torch.ones(5, 2, 32))


def test_layers_use_them_where_they_can():
    x, weight, heads, angles = row_inputs(3)
    epsilon = torch.tensor(1e-5)
    assert torch.equal(RmsNorm(weight, epsilon)(x), normalised(x, weight, epsilon.item()))
    assert torch.equal(RmsNorm(weight[:90], epsilon)(x[:, :90]), rms_norm(x[:, :90], weight[:90], epsilon))
    expected = turned(heads, angles)
    rotate(heads, angles)
    torch.testing.assert_close(heads, expected)
