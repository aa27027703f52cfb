"""Normalisation of hidden states, and of the heads of queries and keys."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from engines.torch_engine.layers.cpu_kernels import computes_rows, normalised


class Norm(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """Normalise over the last dimension, into a new tensor."""


def rms_norm(x: Tensor, weight: Tensor, epsilon: Tensor) -> Tensor:
    """Normalise by the root mean square (Zhang and Sennrich, 2019): ``x / sqrt(mean(x ** 2) + epsilon) * weight`` over
    the last dimension, in float32.

    By the norm of the vector: half as many passes as `torch.nn.functional.rms_norm` takes on CPU. A weight of another
    dtype than ``x`` multiplies before the result is rounded.
    """
    wide = x.float()
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    scale = torch.addcmul(epsilon, norm, norm, value=1.0 / x.shape[-1]).rsqrt_()
    if weight.dtype != x.dtype:
        return (wide * scale).mul_(weight).to(x.dtype)
    return (wide * scale).to(x.dtype).mul_(weight)


class RmsNorm:
    """`rms_norm` with its weight ``[size]`` and epsilon, a tensor of none dimension."""

    __slots__ = ("_epsilon", "_least", "_weight")

    def __init__(self, weight: Tensor, epsilon: Tensor) -> None:
        self._weight = weight
        self._epsilon = epsilon
        self._least = epsilon.item() if computes_rows(weight) else None  # for the kernel, if there is one

    def __call__(self, x: Tensor) -> Tensor:
        if self._least is not None and x.dtype == torch.float32:
            return normalised(x, self._weight, self._least)
        return rms_norm(x, self._weight, self._epsilon)


class LayerNorm:
    """Layer normalisation (Ba et al., 2016), with a bias."""

    __slots__ = ("_bias", "_epsilon", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None, epsilon: float) -> None:
        self._weight = weight
        self._bias = bias
        self._epsilon = epsilon

    def __call__(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self._weight.shape, self._weight, self._bias, self._epsilon)


class HeadNorm(Protocol):
    def normalise(self, heads: Tensor) -> None:
        """Normalise queries and keys ``[rows, heads + kv_heads, head_dim]`` in place."""


class EachHead:
    """RMS normalisation of each head by itself. ``weights`` [heads + kv_heads, head_dim]."""

    def __init__(self, weights: Tensor, epsilon: float) -> None:
        self._weights = weights
        self._epsilon = epsilon

    def normalise(self, heads: Tensor) -> None:
        heads.copy_(functional.rms_norm(heads, heads.shape[-1:], None, self._epsilon) * self._weights)


class AllHeads:
    """RMS normalisation of all queries' heads as one vector, and of all keys'. Weights [heads * head_dim]."""

    def __init__(self, query: Tensor, key: Tensor, epsilon: Tensor) -> None:
        self._query = query
        self._key = key
        self._epsilon = epsilon

    def normalise(self, heads: Tensor) -> None:
        num_queries = len(self._query) // heads.shape[-1]
        for part, weight in ((heads[:, :num_queries], self._query), (heads[:, num_queries:], self._key)):
            part.copy_(rms_norm(part.flatten(1), weight, self._epsilon).view(part.shape))
