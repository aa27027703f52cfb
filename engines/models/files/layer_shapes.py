"""The projections of a decoder's layers: their modules, and the shapes of their weights ``[out, in]``."""

import re
from collections.abc import Mapping

from engines.models.files.architectures import ARCHITECTURES, Modules
from engines.models.files.model_config import ModelConfig

Shape = tuple[int, ...]
_NUMBER = re.compile(r"\.\d+\.")


def unnumbered(module: str) -> str:
    """Return the name of a layer's module without the number of its expert."""
    return _NUMBER.sub(".", module)


def projection_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Shapes of all projections that layers may have, by names after the layer's, without numbers of experts."""
    modules, gated, dim = _modules(config), _is_gated(config), config.head_dim
    heads, kv_heads, hidden = config.num_heads * dim, config.num_kv_heads * dim, config.hidden_size
    outs = [heads, kv_heads, kv_heads] if len(modules.qkv) > 1 else [heads + 2 * kv_heads]
    shapes: dict[str, Shape] = {name: (out, hidden) for name, out in zip(modules.qkv, outs, strict=True)}
    shapes[modules.out] = (hidden, heads)
    shapes |= _mlp("", modules.up, modules.down, config.intermediate_size, hidden, gated=gated)
    if (of := config.experts) is not None:
        own = modules.expert_up, modules.expert_down
        shapes |= _mlp(f"{modules.experts}.", *own, of.intermediate_size, hidden, gated=gated)
        shapes |= _mlp(f"{modules.shared_expert}.", *own, of.shared_size, hidden, gated=gated)
    return shapes


def has_projection(config: ModelConfig, layer: int, module: str) -> bool:
    """Return whether that layer has it. ``module``: with the number of its expert, if it is of one."""
    if unnumbered(module) not in projection_shapes(config):
        return False
    modules, is_sparse = _modules(config), config.layers[layer].is_sparse
    expert = module.removeprefix(f"{modules.experts}.")
    if expert != module:
        number = expert.partition(".")[0]
        return (
            is_sparse
            and number.isdecimal()
            and int(number) < (0 if config.experts is None else config.experts.num_experts)
        )
    if module.startswith(f"{modules.shared_expert}."):
        return is_sparse and config.experts is not None and config.experts.shared_size > 0
    return not (is_sparse and module in (*modules.up, modules.down))


def expert_modules(config: ModelConfig, expert: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of its projections: those that lead up, as they are stacked, and the one that leads down."""
    modules = _modules(config)
    prefix = f"{modules.experts}.{expert}"
    return tuple(f"{prefix}.{name}" for name in modules.expert_up), (f"{prefix}.{modules.expert_down}",)


def _modules(config: ModelConfig) -> Modules:
    """Llama's, of those that no row of the table names: simulated engines have any."""
    found = ARCHITECTURES.get(config.model_type)
    return Modules() if found is None else found.modules


def _is_gated(config: ModelConfig) -> bool:
    found = ARCHITECTURES.get(config.model_type)
    return found is None or found.gated


def _mlp(prefix: str, up: tuple[str, ...], down: str, inner: int, hidden: int, *, gated: bool) -> Mapping[str, Shape]:
    num_up = inner * (1 + gated) // len(up)
    return {**{f"{prefix}{name}": (num_up, hidden) for name in up}, f"{prefix}{down}": (hidden, inner)}
