"""Scale, window and soft cap of a layer's attention, and attention in plain torch."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class AttentionKind:
    """``scale`` multiplies scores. ``window``: tokens that a query sees, its own included; None: all before it.

    ``softcap``: scores are pressed into (-softcap, softcap) by a hyperbolic tangent (Gemma 2); None: they are not.
    """

    scale: float
    window: int | None = None
    softcap: float | None = None

    @classmethod
    def plain(cls, head_dim: int) -> "AttentionKind":
        return cls(1 / math.sqrt(head_dim))

    def first_seen(self, position: int) -> int:
        """The first position that a query sees."""
        return 0 if self.window is None else max(0, position + 1 - self.window)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, kind: AttentionKind) -> Tensor:
    """Attention of ``queries`` [..., rows, head_dim] to ``keys`` [..., tokens, head_dim]; ``mask`` is added to scores.

    The window is the mask's business.
    """
    if kind.softcap is None:
        return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=kind.scale)
    scores = queries @ keys.transpose(-1, -2) * kind.scale
    scores = torch.tanh(scores / kind.softcap) * kind.softcap
    if mask is not None:
        scores = scores + mask
    return scores.softmax(dim=-1, dtype=torch.float32).to(values.dtype) @ values


def causal(num_queries: int, num_keys: int, like: Tensor, window: int | None = None) -> Tensor:
    """Additive mask ``[queries, keys]``: the last query sees the last ``window`` keys, each earlier one those before.

    Without a window the last one sees all keys.
    """
    mask = torch.full((num_queries, num_keys), float("-inf"), dtype=like.dtype, device=like.device)
    last = num_keys - num_queries
    if window is None or window >= num_keys:
        return mask.triu_(last + 1)
    return mask.triu_(last + 1) + torch.full_like(mask, float("-inf")).tril_(last - window)
