"""Matrix products with weights that are packed once, for whatever the device and the dtype do fastest.

On CPU in float32 that is oneDNN's packed form. MKL, which plain products go to, does not use all that processors of
others can do: on an AMD one with AVX-512 it took 1.4 times as long for one row and 2.3 times for 4 to 256.
"""

import warnings
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from engines.models.errors import ModelError

ROWS = 16


class Linear(Protocol):
    """``x @ weight.T + bias`` for a weight ``[out, in]``."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """``residual += self(x)``"""


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


class Int8Linear:
    """Weights in int8, one scale per output channel; activations in 7 bits, scaled per row and call (dynamic).

    The kernel has one scale for all rows, and a single outlier row would cost the others their digits: so rows are
    brought to one size first. The eighth bit would overflow the 16-bit sums of processors without VNNI.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        scales = weight.abs().amax(dim=1).clamp_(min=1e-12).double() / 127
        zeros = torch.zeros(weight.shape[0], dtype=torch.long)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*quantiz.*")
            quantized = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
            self._packed = torch.ops.quantized.linear_prepack(quantized, None)
        self._bias = bias
        self._run = torch.ops.quantized.linear_dynamic.default

    def __call__(self, x: Tensor) -> Tensor:
        out = self._product(x)
        return out if self._bias is None else out.add_(self._bias)

    def _product(self, x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return self._run(x, self._packed, True)  # type: ignore[no-any-return]
        sizes = x.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12)
        return self._run(x / sizes, self._packed, True).mul_(sizes)  # type: ignore[no-any-return]

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        residual.add_(self(x))


def pack(weight: Tensor, bias: Tensor | None, dtype: str) -> Linear:
    """The fastest form of a weight ``[out, in]`` on its device."""
    if weight.device.type == "cpu":
        if dtype == "int8":
            return Int8Linear(weight, bias)
        if dtype == "float32":
            return PackedLinear(weight, bias)
    elif dtype == "int8":
        raise ModelError(f"dtype int8 runs on device cpu only, not on {weight.device}; bfloat16 would be right there")
    return PlainLinear(weight, bias)
