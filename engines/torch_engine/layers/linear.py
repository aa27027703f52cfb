"""Matrix products with weights that are packed once, for whatever the device and the dtype do fastest.

On CPU in float32 that is oneDNN's packed form. Plain products go to MKL, which does not use all that processors of
others can do. On an AMD one with AVX-512 it took 1.4 times as long for one row and 2.3 times for 4 to 256.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

ROWS = 16


class Linear(Protocol):
    """A product with float weights. ``x @ weight.T + bias`` for a weight ``[out, in]``."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """Add the product to ``residual`` in place: ``residual += self(x)``"""


class PlainLinear:
    """The weight as it came: any device and float dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self._weight, self._bias)

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        residual.add_(self(x))


class PackedLinear:
    """float32 on CPU: reordered once by oneDNN for batches of about `ROWS` rows, of which it makes the most at any."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")  # type: ignore[no-any-return]

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        residual.add_(self(x))


def pack(weight: Tensor, bias: Tensor | None) -> Linear:
    """The fastest form of a weight ``[out, in]`` in floats on its device."""
    is_packed = weight.device.type == "cpu" and weight.dtype == torch.float32
    return PackedLinear(weight, bias) if is_packed else PlainLinear(weight, bias)
