"""Rotations keep what products of vectors are, and spread what sticks out."""

import pytest
import torch

from engines.torch_engine.rotation import Rotation


@pytest.mark.parametrize("size", [1, 7, 16, 96, 576, 1536])
def test_products_are_kept(size):
    rotation = Rotation(size)
    x, weight = torch.randn(5, size), torch.randn(3, size)
    torch.testing.assert_close(rotation(x) @ rotation(weight).t(), x @ weight.t(), atol=1e-4, rtol=1e-4)


def test_an_outlier_is_spread():
    x = torch.zeros(1, 576)
    x[0, 100] = 24.0
    assert Rotation(576)(x).abs().max() < 3.0
