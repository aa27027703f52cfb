"""The network in plain torch, for training. Parameters have the names of Hugging Face's Llama, and rotate as there."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

BEGIN, END = 256, 257  # after the bytes, each of which is its own id
VOCABULARY = 258
_linear = partial(nn.Linear, bias=False)


@dataclass(frozen=True, slots=True)
class Shape:
    num_layers: int = 4
    hidden_size: int = 128
    intermediate_size: int = 512
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 32
    context: int = 1024
    rope_theta: float = 10000.0
    epsilon: float = 1e-5


class ByteLlama(nn.Module):
    """Token ids ``[rows, tokens]`` to logits ``[rows, tokens, VOCABULARY]``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.model: Any = nn.Module()
        self.model.embed_tokens = nn.Embedding(VOCABULARY, shape.hidden_size)
        self.model.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.num_layers))
        self.model.norm = nn.RMSNorm(shape.hidden_size, shape.epsilon)
        self.lm_head = _linear(shape.hidden_size, VOCABULARY)
        self._turns = _turns(shape)
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(parameter)  # what writes to the residual stream: every layer begins as no layer
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=shape.hidden_size**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            hidden = layer(hidden, self._turns[:, : tokens.shape[1]])
        logits: Tensor = self.lm_head(self.model.norm(hidden))
        return logits


class _Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, shape.epsilon)
        self.self_attn = _Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, shape.epsilon)
        self.mlp = _Mlp(shape)

    def forward(self, hidden: Tensor, turns: Tensor) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), turns)
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class _Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._head_dim, self._sharers = shape.head_dim, shape.num_heads // shape.num_kv_heads
        self.q_proj = _linear(shape.hidden_size, shape.num_heads * shape.head_dim)
        self.k_proj = _linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim)
        self.v_proj = _linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim)
        self.o_proj = _linear(shape.num_heads * shape.head_dim, shape.hidden_size)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        heads = (*x.shape[:2], -1, self._head_dim)
        queries, keys, values = (
            project(x).view(heads).transpose(1, 2) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        keys, values = (one.repeat_interleave(self._sharers, 1) for one in (_rotate(keys, turns), values))
        attended = functional.scaled_dot_product_attention(_rotate(queries, turns), keys, values, is_causal=True)
        out: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return out


class _Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = _linear(shape.hidden_size, shape.intermediate_size)
        self.up_proj = _linear(shape.hidden_size, shape.intermediate_size)
        self.down_proj = _linear(shape.intermediate_size, shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def _turns(shape: Shape) -> Tensor:
    """Cosines and sines ``[2, context, head_dim]``, each for both halves of a head."""
    steps = torch.arange(0, shape.head_dim, 2) / shape.head_dim
    half = torch.outer(torch.arange(shape.context).float(), shape.rope_theta**-steps)
    angles = torch.cat([half, half], dim=-1)
    return torch.stack([angles.cos(), angles.sin()])


def _rotate(x: Tensor, turns: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * turns[0] + torch.cat([-second, first], dim=-1) * turns[1]
