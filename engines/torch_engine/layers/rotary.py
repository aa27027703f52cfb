"""Rotary position embedding (Su et al., 2021) and the ways to stretch it.

A pair of components is rotated as one complex number. The checkpoints pair component i with i + head_dim / 2;
`interleaved` puts pairs side by side, in the weights, once: dot products of queries and keys do not see the order.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engines.models.errors import ModelError
from engines.models.files.model_config import Rope
from engines.torch_engine.layers.cpu_kernels import computes_rows, turn


def interleaved(num_heads: int, head_dim: int, num_dims: int) -> Tensor:
    """Return the order of rows [heads * head_dim] in which pairs (i, i + num_dims / 2) of each head are neighbours.

    The components of a head after its first ``num_dims`` stay where they are.
    """
    pairs = torch.arange(num_dims).view(2, -1).t().flatten()
    head = torch.cat([pairs, torch.arange(num_dims, head_dim)])
    return (torch.arange(num_heads)[:, None] * head_dim + head).flatten()


class Rotary:
    """Gives the rotation of every position as complex numbers. ``context``: tokens that the model was trained for."""

    def __init__(self, rope: Rope, context: int, device: torch.device) -> None:
        frequencies, self._scale = _frequencies(rope, context)
        self._frequencies = frequencies.to(device)

    def angles(self, positions: Tensor) -> Tensor:
        """Unit complex numbers ``[n, 1, num_dims / 2]`` (times the attention factor of YaRN) for positions [n]."""
        theta = positions.float()[:, None, None] * self._frequencies
        return torch.complex(theta.cos() * self._scale, theta.sin() * self._scale)


def rotate(heads: Tensor, angles: Tensor) -> None:
    """Rotate the first ``num_dims`` of ``heads`` [n, heads, head_dim], pairs side by side, in place."""
    if computes_rows(heads):
        turn(heads, angles)
        return
    rotated = heads[..., : 2 * angles.shape[-1]]
    pairs = rotated.view(*rotated.shape[:-1], -1, 2)
    if heads.dtype == torch.float32:
        torch.view_as_complex(pairs).mul_(angles)
    else:
        pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.float()) * angles))


def _frequencies(rope: Rope, context: int) -> tuple[Tensor, float]:
    exponents = torch.arange(0, rope.num_dims, 2).float() / rope.num_dims
    powers: Tensor = rope.theta**exponents
    plain: Tensor = 1.0 / powers
    if rope.scaling is None:
        return plain, 1.0
    kind, scaling = rope.scaling["rope_type"], rope.scaling
    if kind == "linear":
        return plain / scaling["factor"], 1.0
    if kind == "llama3":
        return _llama3(plain, scaling), 1.0
    if kind == "yarn":
        return _yarn(plain, rope, scaling, context)
    if kind == "longrope":
        return 1.0 / (torch.tensor(scaling["short_factor"]) * powers), _long_scale(scaling, context)
    raise ModelError(f"rope type {kind!r} is not supported; default, linear, llama3, yarn or longrope would be")


def _long_scale(scaling: Mapping[str, Any], context: int) -> float:
    """LongRoPE's attention factor (Ding et al., 2024)."""
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    before = scaling["original_max_position_embeddings"] or context
    factor = scaling.get("factor") or context / before
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(before))


def _llama3(plain: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Llama 3.1: long waves are slowed by the factor, short ones kept, those between are blended."""
    context = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = context * plain / (2 * math.pi)
    keep: Tensor = ((turns - low) / (high - low)).clamp(0, 1)
    stretched: Tensor = (1 - keep) * plain / scaling["factor"]
    return stretched + keep * plain


def _yarn(plain: Tensor, rope: Rope, scaling: Mapping[str, Any], context: int) -> tuple[Tensor, float]:
    """YaRN (Peng et al., 2023), equations 17 to 22: "NTK by parts" and the attention factor."""
    factor = scaling["factor"]
    before = scaling.get("original_max_position_embeddings") or context
    low = _yarn_dimension(scaling.get("beta_fast") or 32, before, rope)
    high = _yarn_dimension(scaling.get("beta_slow") or 1, before, rope)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.num_dims - 1)
    ramp = (torch.arange(rope.num_dims // 2).float() - low) / max(high - low, 0.001)
    keep: Tensor = 1 - ramp.clamp(0, 1)
    scale = scaling.get("attention_factor")
    if scale is None:
        scale = 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0
    return (1 - keep) * plain / factor + keep * plain, scale


def _yarn_dimension(rotations: float, context: int, rope: Rope) -> float:
    """The component that makes ``rotations`` turns within the original context."""
    return rope.num_dims * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))
