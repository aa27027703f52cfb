"""Muon (Jordan et al. 2024): steps in the direction of the momentum with all its singular values made one.

For the matrices of the layers it needs about half the steps of AdamW. torch's own works in bfloat16, which is slow on
CPUs without it, and on one matrix at a time.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

MOMENTUM = 0.95
_STEPS, _COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration


class Muon:
    """Matrices of one shape are stepped together."""

    def __init__(self, matrices: Iterable[Tensor]) -> None:
        by_shape = defaultdict(list)
        for matrix in matrices:
            by_shape[matrix.shape].append(matrix)
        self._groups = [(group, torch.zeros(len(group), *shape)) for shape, group in by_shape.items()]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take a step of root mean square ``rate`` with each matrix, and drop its gradient."""
        for matrices, momentum in self._groups:
            gradient = torch.stack([matrix.grad for matrix in matrices if matrix.grad is not None])
            momentum.lerp_(gradient, 1 - MOMENTUM)
            direction = orthogonal(gradient.lerp_(momentum, MOMENTUM))
            size = rate * max(direction.shape[-2:]) ** 0.5  # an orthogonal matrix has rows or columns of length one
            for matrix, own in zip(matrices, direction, strict=True):
                matrix.sub_(own, alpha=size)
                matrix.grad = None


def orthogonal(matrices: Tensor) -> Tensor:
    """``[n, rows, columns]`` with singular values near one (0.7 to 1.2)."""
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    out: Tensor = x.mT if is_tall else x
    return out
