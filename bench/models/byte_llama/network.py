"""The network in plain torch, for training. Parameters have the names of Hugging Face's Llama, and rotate as there."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

BEGIN, END = 256, 257  # after the bytes, each of which is its own id
VOCABULARY = 258


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

    _cos: Tensor
    _sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.model = _Trunk(shape)
        self.lm_head = nn.Linear(shape.hidden_size, VOCABULARY, bias=False)
        angles = _angles(shape)
        self.register_buffer("_cos", angles.cos(), persistent=False)
        self.register_buffer("_sin", angles.sin(), persistent=False)
        self._initialise(shape)

    def _initialise(self, shape: Shape) -> None:
        """What writes to the residual stream begins at nothing, so that every layer begins as no layer."""
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=shape.hidden_size**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        logits: Tensor = self.lm_head(self.model(tokens, self._cos[:length], self._sin[:length]))
        return logits


class _Trunk(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, shape.hidden_size)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.num_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, shape.epsilon)

    def forward(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        hidden = self.embed_tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden, cos, sin)
        out: Tensor = self.norm(hidden)
        return out


class _Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, shape.epsilon)
        self.self_attn = _Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, shape.epsilon)
        self.mlp = _Mlp(shape)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin)
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class _Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._shape = shape
        self.q_proj = nn.Linear(shape.hidden_size, shape.num_heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * shape.head_dim, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, length, _ = x.shape
        queries, keys, values = (
            project(x).view(rows, length, -1, self._shape.head_dim).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        sharers = self._shape.num_heads // self._shape.num_kv_heads
        attended = functional.scaled_dot_product_attention(
            _rotate(queries, cos, sin),
            _rotate(keys, cos, sin).repeat_interleave(sharers, 1),
            values.repeat_interleave(sharers, 1),
            is_causal=True,
        )
        out: Tensor = self.o_proj(attended.transpose(1, 2).reshape(rows, length, -1))
        return out


class _Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def _angles(shape: Shape) -> Tensor:
    """``[context, head_dim]``, each angle for both halves of a head."""
    steps = torch.arange(0, shape.head_dim, 2) / shape.head_dim
    half = torch.outer(torch.arange(shape.context).float(), shape.rope_theta**-steps)
    return torch.cat([half, half], dim=-1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
