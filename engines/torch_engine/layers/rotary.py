"""Rotary position embedding (Su et al., 2021) and the ways to stretch it.

A pair of components is rotated as one complex number. The checkpoints pair component i with i + head_dim / 2;
`interleave` puts pairs side by side, in the weights, once: dot products of queries and keys do not see the order.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig


def interleave(weight: Tensor, head_dim: int) -> Tensor:
    """Reorder ``[heads * head_dim, ...]`` from (i, i + head_dim / 2) pairs to neighbours."""
    halves = weight.view(-1, 2, head_dim // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


class Rotary:
    """Gives the rotation of every position as complex numbers."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        frequencies, self._scale = _frequencies(config)
        self._frequencies = frequencies.to(device)

    def angles(self, positions: Tensor) -> Tensor:
        """Unit complex numbers ``[n, 1, head_dim / 2]`` (times the attention factor of YaRN) for positions [n]."""
        theta = positions.float()[:, None, None] * self._frequencies
        return torch.complex(theta.cos() * self._scale, theta.sin() * self._scale)


def rotate(heads: Tensor, angles: Tensor) -> None:
    """Rotate ``heads`` [n, heads, head_dim], pairs side by side, in place."""
    pairs = heads.view(*heads.shape[:-1], -1, 2)
    if heads.dtype == torch.float32:
        torch.view_as_complex(pairs).mul_(angles)
    else:
        pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.float()) * angles))


def _frequencies(config: ModelConfig) -> tuple[Tensor, float]:
    scaling: Mapping[str, Any] = config.rope_scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    exponents = torch.arange(0, config.head_dim, 2).float() / config.head_dim
    plain: Tensor = 1.0 / config.rope_theta**exponents
    if kind == "default":
        return plain, 1.0
    if kind == "linear":
        return plain / scaling["factor"], 1.0
    if kind == "llama3":
        return _llama3(plain, scaling), 1.0
    if kind == "yarn":
        return _yarn(plain, scaling, config)
    raise ModelError(f"rope type {kind!r} is not supported; default, linear, llama3 or yarn would be")


def _llama3(plain: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Llama 3.1: long waves are slowed by the factor, short ones kept, those between are blended."""
    context = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = context * plain / (2 * math.pi)
    keep: Tensor = ((turns - low) / (high - low)).clamp(0, 1)
    stretched: Tensor = (1 - keep) * plain / scaling["factor"]
    return stretched + keep * plain


def _yarn(plain: Tensor, scaling: Mapping[str, Any], config: ModelConfig) -> tuple[Tensor, float]:
    """YaRN (Peng et al., 2023), equations 17 to 22: "NTK by parts" and the attention factor."""
    factor = scaling["factor"]
    context = scaling.get("original_max_position_embeddings") or config.max_position_embeddings
    low = _yarn_dimension(scaling.get("beta_fast") or 32, context, config)
    high = _yarn_dimension(scaling.get("beta_slow") or 1, context, config)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.head_dim - 1)
    ramp = (torch.arange(config.head_dim // 2).float() - low) / max(high - low, 0.001)
    keep: Tensor = 1 - ramp.clamp(0, 1)
    scale = scaling.get("attention_factor")
    if scale is None:
        scale = 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0
    return (1 - keep) * plain / factor + keep * plain, scale


def _yarn_dimension(rotations: float, context: int, config: ModelConfig) -> float:
    """The component that makes ``rotations`` turns within the original context."""
    return config.head_dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(config.rope_theta))
