"""Rotations that spread outliers over all channels, so that activations survive being rounded to int8.

As in QuaRot (Ashkboos et al., 2024), the whole residual stream is kept in rotated coordinates. That costs nothing: the
weights that read and write it are rotated once, the norms' weights folded into the readers. The input of the down
projection is rotated as it comes. The rotations are Kronecker products of two cosine transforms: any size has them.
"""

import math

import torch
from torch import Tensor

from engines.models.config import ModelConfig


class Rotation:
    """An orthogonal map of vectors of one size."""

    def __init__(self, size: int) -> None:
        rows = max(n for n in range(1, math.isqrt(size) + 1) if size % n == 0)
        self._left = _cosines(rows)
        self._right = _cosines(size // rows).t().contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate the last dimension of ``x`` [n, size]."""
        matrices = x.reshape(len(x), len(self._left), len(self._right))
        return torch.matmul(self._left, torch.matmul(matrices, self._right)).view(x.shape)


def _cosines(size: int) -> Tensor:
    """The orthonormal type-II discrete cosine transform, one basis vector a row."""
    steps = torch.arange(size, dtype=torch.float64)
    basis = torch.cos(math.pi / size * steps[:, None] * (steps + 0.5)) * math.sqrt(2 / size)
    basis[0] /= math.sqrt(2)
    return basis.float()


class Spread:
    """Rotates a model's weights as they are loaded. Not being there (None) is the identity."""

    def __init__(self, config: ModelConfig) -> None:
        self.residual = Rotation(config.hidden_size)
        self.mlp = Rotation(config.intermediate_size)

    def reader(self, weight: Tensor, norm: Tensor) -> Tensor:
        """A weight ``[out, hidden]`` that reads the residual stream after a norm, whose weight it takes over."""
        return self.residual(weight * norm)

    def writer(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Weight ``[hidden, in]`` and bias that write to the residual stream."""
        rotated = self.residual(weight.t()).t().contiguous()
        return rotated, None if bias is None else self.residual(bias[None])[0]
