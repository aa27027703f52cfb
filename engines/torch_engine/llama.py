"""The forward pass of the Llama family: Llama 2 and 3, Mistral, Qwen 2, 2.5 and 3, SmolLM2.

A step computes a batch of chunks flattened to rows: one matrix product serves all requests, wherever each is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Chunk
from engines.torch_engine.kv_pool import KVPool
from engines.torch_engine.layers.attention import Layout, Planner
from engines.torch_engine.layers.cpu_kernels import CodeLinear, gated, gates, keeps_codes
from engines.torch_engine.layers.linear import Linear, pack
from engines.torch_engine.layers.norm import rms_norm
from engines.torch_engine.layers.paged_attention import PagedAttention, PagedPlanner
from engines.torch_engine.layers.rotary import Rotary, rotate
from engines.torch_engine.shape import compute_dtype
from engines.torch_engine.weights import EMBEDDINGS, Checkpoint, Part, gate_up, head_norms, head_part, query_key_value

CPU_GROUP_BYTES = 2 * 2**20  # stays in the caches
DEVICE_GROUP_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Layer:
    """One transformer block's packed weights."""

    attention_norm: Tensor
    qkv: Linear
    head_norms: Tensor | None
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers of a step share."""

    angles: Tensor
    write_index: Tensor
    layout: Layout


def _layer(checkpoint: Checkpoint, number: int, config: ModelConfig, dtype: str) -> Layer:
    prefix = f"model.layers.{number}"
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    return Layer(
        qkv=linear(checkpoint, query_key_value(attention, config), dtype),
        attention_norm=checkpoint.get(f"{prefix}.input_layernorm.weight"),
        head_norms=head_norms(checkpoint, attention, config),
        out=linear(checkpoint, [Part(f"{attention}.o_proj")], dtype),
        gate_up=linear(checkpoint, gate_up(mlp), dtype),
        mlp_norm=checkpoint.get(f"{prefix}.post_attention_layernorm.weight"),
        down=linear(checkpoint, [Part(f"{mlp}.down_proj")], dtype),
    )


def linear(checkpoint: Checkpoint, parts: Sequence[Part], dtype: str) -> Linear:
    """Projections that are computed as one, in the form that is fastest here."""
    bias = checkpoint.bias(parts)
    codes = checkpoint.codes(parts, dtype) if keeps_codes(dtype, checkpoint.device.type) else None
    if codes is not None:
        return CodeLinear(codes, bias, rounds=dtype == "int8")
    return pack(checkpoint.weight(parts), bias)


def _why_no_int8(device: torch.device) -> str:
    if device.type != "cpu":
        return f"dtype int8 runs on device cpu only, not on {device}; bfloat16 would be right there"
    return "dtype int8 needs the kernels that a C compiler makes when MeshServe is installed; without one, take float32"


class Llama:
    """One model with its KV pool. ``dtype`` is one of `shape.DTYPES`; ``paged`` reads the pool in place."""

    def __init__(
        self, folder: Path, config: ModelConfig, dtype: str, pool: KVPool, paged: PagedAttention | None = None
    ) -> None:
        self.config = config
        self._paged = paged
        self._device = pool.device
        self._dtype: torch.dtype = getattr(torch, compute_dtype(dtype))
        if dtype == "int8" and not keeps_codes(dtype, self._device.type):
            raise ModelError(_why_no_int8(self._device))
        self._epsilon = torch.tensor(config.rms_norm_eps, device=self._device)
        checkpoint = Checkpoint(folder, config, self._dtype, self._device)
        self._layers = [_layer(checkpoint, number, config, dtype) for number in range(config.num_layers)]
        self._norm = checkpoint.get("model.norm.weight")
        self._head = linear(checkpoint, [head_part(config)], dtype)
        self._embeddings = checkpoint.mapped(f"{EMBEDDINGS}.weight")
        if self._device.type != "cpu":
            self._embeddings = self._embeddings.to(self._device, self._dtype)
        self._rotary = Rotary(config, self._device)
        self.use(pool)
        self._workspace = torch.empty(0, dtype=self._dtype, device=self._device)

    def use(self, pool: KVPool) -> None:
        """Keep KV there from now on."""
        self._pool = pool
        group_bytes = CPU_GROUP_BYTES if self._device.type == "cpu" else DEVICE_GROUP_BYTES
        self._planner: Planner | PagedPlanner = Planner(pool, self._dtype, group_bytes)
        if self._paged is not None:
            self._planner = PagedPlanner(pool, self._paged)

    def plan(self, chunks: Sequence[Chunk]) -> Layout:
        return self._planner.plan(chunks)

    def forward(self, chunks: Sequence[Chunk], layout: Layout, rows: Tensor) -> Tensor:
        """Compute the chunks (in the layout's order), store their KV, return the final hidden states of ``rows``."""
        return self.compute(*self._inputs(chunks), layout, rows)

    def compute(self, tokens: Tensor, positions: Tensor, write_index: Tensor, layout: Layout, rows: Tensor) -> Tensor:
        """Compute hidden states. `forward` of tokens at positions [n], whose KV goes to ``write_index``
        (`KVPool.write_index`).
        """
        step = _Step(self._rotary.angles(positions), write_index, layout)
        hidden = self._embeddings.index_select(0, tokens).to(self._dtype)
        self._reserve(layout.workspace_items)
        for number, layer in enumerate(self._layers):
            layer.out.add_to(hidden, self._attention(number, layer, hidden, step))
            if number == len(self._layers) - 1:
                hidden = hidden.index_select(0, rows)
            layer.down.add_to(hidden, self._mlp(layer, hidden))
        return self._normed(hidden, self._norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute logits. ``[rows, vocabulary]`` in float32."""
        return self._head(hidden).float()

    def _inputs(self, chunks: Sequence[Chunk]) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids and positions [rows], and where their KV goes."""
        size = self._pool.shape.block_size
        tokens = [token for chunk in chunks for token in chunk.tokens]
        positions = [p for chunk in chunks for p in range(chunk.start, chunk.start + len(chunk.tokens))]
        blocks = [
            chunk.blocks[p // size] for chunk in chunks for p in range(chunk.start, chunk.start + len(chunk.tokens))
        ]
        both = torch.tensor([tokens, positions, blocks]).to(self._device)
        return both[0], both[1], self._pool.write_index(both[2], both[1] % size)

    def _reserve(self, items: int) -> None:
        if self._workspace.numel() < items:
            self._workspace = torch.empty(items, dtype=self._dtype, device=self._device)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self._epsilon)

    def _attention(self, number: int, layer: Layer, hidden: Tensor, step: _Step) -> Tensor:
        config = self.config
        heads = layer.qkv(self._normed(hidden, layer.attention_norm)).view(len(hidden), -1, config.head_dim)
        rotated = heads[:, : config.num_heads + config.num_kv_heads]
        if layer.head_norms is not None:
            rotated.copy_(
                functional.rms_norm(rotated, (config.head_dim,), None, config.rms_norm_eps) * layer.head_norms
            )
        rotate(rotated, step.angles)
        self._pool.write(number, step.write_index, heads[:, config.num_heads :].reshape(-1, config.head_dim))
        return step.layout.attend(number, heads[:, : config.num_heads], self._pool, self._workspace)

    def _mlp(self, layer: Layer, hidden: Tensor) -> Tensor:
        both = layer.gate_up(self._normed(hidden, layer.mlp_norm))
        if gates(both):
            product = gated(both)
        else:
            gate, up = both.chunk(2, dim=-1)
            product = functional.silu(gate, inplace=True).mul_(up)
        return product
