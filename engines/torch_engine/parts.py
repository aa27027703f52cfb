"""Matrices of a checkpoint that are computed as one, the order of their rows, and shapes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.models.files.encoder_config import EncoderShape
from engines.models.files.layer_shapes import projection_shapes, unnumbered
from engines.models.files.model_config import LayerConfig, ModelConfig
from engines.torch_engine.layers.rotary import interleaved
from engines.torch_engine.shape import compute_dtype, float_dtype


@dataclass(frozen=True, slots=True)
class Part:
    """A projection, by its module's name. ``rows``: the order in which its outputs are wanted; None: as they are."""

    name: str
    rows: Tensor | None = None

    def ordered(self, rows: Tensor) -> Tensor:
        return rows if self.rows is None else rows.index_select(0, self.rows.to(rows.device))


Parts = tuple[Part, ...]


def layer_name(config: ModelConfig, number: int) -> str:
    return f"{config.architecture.modules.layers}.{number}"


def head_rows(config: ModelConfig, number: int) -> tuple[Tensor, Tensor]:
    """The order of queries' rows and of keys', rotary pairs of a head side by side."""
    num_dims = config.ropes[config.layers[number].rope or 0].num_dims
    return tuple(interleaved(heads, config.head_dim, num_dims) for heads in (config.num_heads, config.num_kv_heads))  # type: ignore[return-value]


def query_key_value(config: ModelConfig, number: int) -> Parts:
    """The three projections, which are computed as one: queries, keys, values."""
    layer, names = layer_name(config, number), config.architecture.modules.qkv
    queries, keys = head_rows(config, number)
    if len(names) > 1:
        query, key, value = (f"{layer}.{name}" for name in names)
        return Part(query, queries), Part(key, keys), Part(value)
    values = torch.arange(len(keys))
    rows = torch.cat([queries, len(queries) + keys, len(queries) + len(keys) + values])
    if config.architecture.interleaved_qkv:
        by_head = torch.arange(len(rows)).view(config.num_heads, 3, config.head_dim)
        rows = by_head.transpose(0, 1).flatten()[rows]
    return (Part(f"{layer}.{names[0]}", rows),)


def attention_out(config: ModelConfig, number: int) -> Parts:
    return (Part(f"{layer_name(config, number)}.{config.architecture.modules.out}"),)


def head_part(config: ModelConfig) -> Part:
    """Return the part of the weights that turns hidden states into logits."""
    modules = config.architecture.modules
    return Part(modules.embeddings if config.tie_word_embeddings else modules.head)


@dataclass(frozen=True, slots=True)
class MlpParts:
    """The projections of an MLP. ``up``: gate and up are computed as one."""

    up: Parts
    down: Parts


def dense_mlp(config: ModelConfig, number: int) -> MlpParts:
    modules = config.architecture.modules
    return _mlp(layer_name(config, number), modules.up, modules.down)


def experts(config: ModelConfig, number: int) -> list[MlpParts]:
    """Return the projections of each expert of a sparse layer, in order."""
    modules = config.architecture.modules
    prefix, num_experts = f"{layer_name(config, number)}.{modules.experts}", config.experts.num_experts  # type: ignore[union-attr]
    return [_mlp(f"{prefix}.{expert}", modules.expert_up, modules.expert_down) for expert in range(num_experts)]


def shared_expert(config: ModelConfig, number: int) -> MlpParts | None:
    if config.experts is None or not config.experts.shared_size:
        return None
    modules = config.architecture.modules
    return _mlp(f"{layer_name(config, number)}.{modules.shared_expert}", modules.expert_up, modules.expert_down)


def routers(config: ModelConfig, number: int) -> list[Part]:
    """What decides which experts compute a token, and how much the shared one counts: never quantised."""
    modules, layer = config.architecture.modules, layer_name(config, number)
    names = [modules.router] if shared_expert(config, number) is None else [modules.router, modules.shared_gate]
    return [Part(f"{layer}.{name}") for name in names]


def _mlp(prefix: str, up: tuple[str, ...], down: str) -> MlpParts:
    return MlpParts(tuple(Part(f"{prefix}.{name}") for name in up), (Part(f"{prefix}.{down}"),))


def products(config: ModelConfig) -> Iterator[Parts]:
    """All of a model that may be computed from codes."""
    yield (head_part(config),)
    for number, layer in enumerate(config.layers):
        yield query_key_value(config, number)
        yield attention_out(config, number)
        for mlp in _mlps(config, number, layer):
            yield mlp.up
            yield mlp.down


def _mlps(config: ModelConfig, number: int, layer: LayerConfig) -> list[MlpParts]:
    if not layer.is_sparse:
        return [dense_mlp(config, number)]
    shared = shared_expert(config, number)
    return experts(config, number) + ([] if shared is None else [shared])


def shape_of(name: str, config: ModelConfig) -> tuple[int, ...]:
    """Return the shape of a parameter, by its name: ``[out, in]`` of a projection, ``[size]`` of a vector."""
    module, _, kind = name.rpartition(".")
    local = module.removeprefix(f"{config.architecture.modules.layers}.").partition(".")[2]
    is_in_layer = module.startswith(f"{config.architecture.modules.layers}.")
    sizes = _layer_sizes(config) if is_in_layer else _model_sizes(config)
    size = sizes.get(unnumbered(local) if is_in_layer else module, (config.hidden_size,))  # other norms
    return size[:1] if kind == "bias" else size


def _model_sizes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    modules, size = config.architecture.modules, (config.vocab_size, config.hidden_size)
    return {modules.embeddings: size, modules.head: size}


def _layer_sizes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """By names after the layer's, without numbers of experts."""
    modules, dim = config.architecture.modules, config.head_dim
    is_whole = config.architecture.head_norm == "all heads as one"
    sizes = projection_shapes(config) | {
        modules.query_norm: (config.num_heads * dim if is_whole else dim,),
        modules.key_norm: (config.num_kv_heads * dim if is_whole else dim,),
    }
    if config.experts is not None:
        sizes |= {
            modules.router: (config.experts.num_experts, config.hidden_size),
            modules.shared_gate: (1, config.hidden_size),
        }
    return sizes


def weight_bytes(config: ModelConfig, dtype: str, device: str) -> int:
    """Return the bytes of a loaded model in floats. On CPU, embeddings are rows of the file, read when they are asked
    for.
    """
    if config.encoder is not None:
        return _encoder_bytes(config, config.encoder, dtype)
    names = [part.name for parts in products(config) for part in parts]
    sparse = [number for number, layer in enumerate(config.layers) if layer.is_sparse]
    names += [part.name for number in sparse for part in routers(config, number)]
    num_weights = sum([math.prod(shape_of(f"{name}.weight", config)) for name in names])
    rows = config.vocab_size * config.hidden_size
    item_bytes: int = getattr(torch, compute_dtype(dtype, device)).itemsize
    return (num_weights + (0 if device == "cpu" else rows)) * item_bytes


def _encoder_bytes(config: ModelConfig, encoder: EncoderShape, dtype: str) -> int:
    """Of all its tables and products; biases and norms are little beside them."""
    hidden, inner = config.hidden_size, config.intermediate_size
    rows = config.vocab_size + config.max_position_embeddings + encoder.num_segments
    num_weights = rows * hidden + config.num_layers * (4 * hidden * hidden + 2 * hidden * inner)
    item_bytes: int = getattr(torch, float_dtype(dtype)).itemsize
    return num_weights * item_bytes
