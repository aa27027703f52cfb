"""Matrix products with weights that are packed once, for whatever the device and the dtype do fastest.

On CPU in float32, MKL reads a matrix fastest for a single row if the longer side is contiguous. For a few rows, and for
as wide a matrix as the vocabulary even for one, oneDNN's packed form is as fast or faster.
"""

import warnings
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from engines.models.errors import ModelError


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


class ExactLinear:
    """float32 on CPU. Stored so that the longer side is contiguous."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        num_out, num_in = weight.shape
        stored = weight.t().contiguous() if num_out >= num_in else weight.clone().t()
        self._weight = stored  # [in, out]
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        if self._bias is None:
            return torch.mm(x, self._weight)
        return torch.addmm(self._bias, x, self._weight)

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        residual.addmm_(x, self._weight)
        if self._bias is not None:
            residual.add_(self._bias)


class ExactHead:
    """The projection to the vocabulary in float32 on CPU, packed by oneDNN for batches of about 16 rows."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 16)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")  # type: ignore[no-any-return]

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
            return ExactLinear(weight, bias)
    elif dtype == "int8":
        raise ModelError(f"dtype int8 runs on device cpu only, not on {weight.device}; bfloat16 would be right there")
    return PlainLinear(weight, bias)


def pack_head(weight: Tensor, dtype: str) -> Linear:
    if weight.device.type == "cpu" and dtype == "float32":
        return ExactHead(weight)
    return pack(weight, None, dtype)
