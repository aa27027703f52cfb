"""The forward pass of a decoder, of any of the kinds that `engines.models.files.architectures` lists.

A step computes a batch of chunks flattened to rows: one matrix product serves all requests, wherever each is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Chunk
from engines.torch_engine.adapters.adapted import Adapters
from engines.torch_engine.blocks import BlockMaker, Layer
from engines.torch_engine.kv_pool import KVPool
from engines.torch_engine.layers.attention import Layout, Planner
from engines.torch_engine.layers.cpu_kernels import LANES, attends, keeps_codes
from engines.torch_engine.layers.linear import Linear
from engines.torch_engine.layers.mlp import Mlp
from engines.torch_engine.layers.norm import Norm
from engines.torch_engine.layers.paged_attention import PagedAttention, PagedPlanner
from engines.torch_engine.layers.rotary import Rotary, rotate
from engines.torch_engine.parts import head_part
from engines.torch_engine.shape import compute_dtype, float_dtype
from engines.torch_engine.tensors import ReadTensor, read_tensor
from engines.torch_engine.weights import Checkpoint

CPU_GROUP_BYTES = 2 * 2**20  # stays in the caches
DEVICE_GROUP_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers of a step share. ``angles``: by rope of the model."""

    angles: Sequence[Tensor]
    write_index: Tensor
    layout: Layout


def _why_no_int8(device: torch.device) -> str:
    if device.type != "cpu":
        return f"dtype int8 runs on device cpu only, not on {device}; bfloat16 would be right there"
    return "dtype int8 needs the kernels that a C compiler makes when MeshServe is installed; without one, take float32"


def _why_no_int8_kv(config: ModelConfig) -> str:
    needs = f"dtype float32, bfloat16 or int8 on device cpu, and heads of a multiple of {LANES}"
    return f"kv_dtype int8 needs kernels that were compiled, {needs} (this model's: {config.head_dim}); leave it out"


class Decoder:
    """One model with its KV pool. ``dtype`` is one of `shape.DTYPES`; ``paged`` reads the pool in place.
    ``before_layer`` is called before each layer of a step; ``read`` reads the model's tensors.
    """

    def __init__(
        self,
        folder: Path,
        config: ModelConfig,
        dtype: str,
        pool: KVPool,
        paged: PagedAttention | None = None,
        *,
        generates: bool = True,
        before_layer: Callable[[], None] | None = None,
        read: ReadTensor = read_tensor,
    ) -> None:
        self.config = config
        self._before_layer = before_layer
        self._paged = paged
        self._device = pool.device
        self._dtype: torch.dtype = getattr(torch, compute_dtype(dtype, self._device.type))
        if dtype == "int8" and not keeps_codes(dtype, self._device.type):
            raise ModelError(_why_no_int8(self._device))
        if pool.shape.dtype == "int8" and not (
            keeps_codes(dtype, self._device.type) and attends(self._dtype, config.head_dim)
        ):
            raise ModelError(_why_no_int8_kv(config))
        checkpoint = Checkpoint(folder, config, self._dtype, self._device, read)
        self.adapters = Adapters(config, self._dtype, self._device)
        blocks, modules = BlockMaker(checkpoint, config, dtype, self.adapters), config.architecture.modules
        self._layers = [blocks.layer(number) for number in range(config.num_layers)]
        self._norm = blocks.norm(modules.norm)
        self._head = blocks.linear([head_part(config)]) if generates else None
        self._embeddings = checkpoint.mapped(f"{modules.embeddings}.weight")
        if self._device.type != "cpu":
            self._embeddings = self._embeddings.to(self._device, self._dtype)
        self._embedding_scale = _embedding_scale(config, getattr(torch, float_dtype(dtype)))
        self._rotaries = [Rotary(rope, config.max_position_embeddings, self._device) for rope in config.ropes]
        self.windows = frozenset(layer.window for layer in config.layers)
        self.use(pool)
        self._workspace = torch.empty(0, dtype=self._dtype, device=self._device)

    @property
    def attends_in_place(self) -> bool:
        """Return whether our kernels for processors compute the attention of decodes."""
        return self._device.type == "cpu" and attends(self._dtype, self.config.head_dim)

    def use(self, pool: KVPool) -> None:
        """Keep KV there from now on."""
        self._pool = pool
        group_bytes = CPU_GROUP_BYTES if self._device.type == "cpu" else DEVICE_GROUP_BYTES
        self._planner: Planner | PagedPlanner = Planner(pool, self._dtype, group_bytes, self.windows)
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
        step = _Step([rotary.angles(positions) for rotary in self._rotaries], write_index, layout)
        hidden = self._embeddings.index_select(0, tokens).to(self._dtype)
        if self._embedding_scale is not None:
            hidden.mul_(self._embedding_scale)
        self._reserve(layout.workspace_items)
        last = len(self._layers) - 1
        for number, layer in enumerate(self._layers):
            if self._before_layer is not None:
                self._before_layer()
            beside = _normed(layer.mlp_norm, hidden) if self.config.parallel_residual else None
            _add(hidden, layer.out, self._attention(number, layer, hidden, step), layer.post_attention_norm)
            if number == last:
                hidden = hidden.index_select(0, rows)
                beside = None if beside is None else beside.index_select(0, rows)
            _add(hidden, layer.mlp, _normed(layer.mlp_norm, hidden) if beside is None else beside, layer.post_mlp_norm)
        return self._norm(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute logits. ``[rows, vocabulary]`` in float32."""
        assert self._head is not None, "it was loaded without what it generates with"
        logits = self._head(hidden).float()
        softcap = self.config.logit_softcap
        return logits if softcap is None else logits.div_(softcap).tanh_().mul_(softcap)

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

    def _attention(self, number: int, layer: Layer, hidden: Tensor, step: _Step) -> Tensor:
        config = self.config
        heads = layer.qkv(_normed(layer.attention_norm, hidden)).view(hidden.shape[0], -1, config.head_dim)
        rotated = heads[:, : config.num_heads + config.num_kv_heads]
        if layer.head_norm is not None:
            layer.head_norm.normalise(rotated)
        if layer.rope is not None:
            rotate(rotated, step.angles[layer.rope])
        self._pool.write(number, step.write_index, heads[:, config.num_heads :])
        return step.layout.attend(number, heads[:, : config.num_heads], self._pool, self._workspace, layer.attention)


def _normed(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


def _add(hidden: Tensor, block: Linear | Mlp, x: Tensor, norm: Norm | None) -> None:
    """Add what a block makes of ``x``, normalised if there is a norm for it, to the hidden states in place."""
    if norm is None:
        block.add_to(hidden, x)
    else:
        hidden.add_(norm(block(x)))


def _embedding_scale(config: ModelConfig, dtype: torch.dtype) -> float | None:
    """As the weights' dtype has it: that is what these models were trained with."""
    if not config.architecture.scales_embeddings:
        return None
    return torch.tensor(config.hidden_size**0.5, dtype=dtype).item()
