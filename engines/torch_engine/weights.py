"""A checkpoint's tensors, one at a time: what has been packed is dropped before the next is read."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engines.models.config import ModelConfig
from engines.models.errors import ModelError
from engines.torch_engine.rotary import interleave


class Checkpoint:
    """Tensors of a prepared model folder, in the given dtype and on the given device.

    The file is opened anew for each tensor: mapped pages leave the process with the mapping. Raise `ModelError` for
    what is not there, cannot be read, or has another shape than the configuration says.
    """

    def __init__(self, folder: Path, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        self._files = _files(folder)
        self._folder = folder
        self._config = config
        self._dtype = dtype
        self._device = device

    def mapped(self, name: str) -> Tensor:
        """The tensor as it lies in the file, mapped: only what is touched becomes resident."""
        if name not in self._files:
            raise ModelError(f"{self._folder}: the model has no tensor {name}")
        path = self._files[name]
        try:
            with safe_open(path, framework="pt") as file:
                tensor: Tensor = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path}: {name} cannot be read: {error}") from error
        expected = shape_of(name, self._config)
        if tuple(tensor.shape) != expected:
            raise ModelError(f"{path}: {name} is {list(tensor.shape)}, by config.json it should be {list(expected)}")
        return tensor

    def get(self, name: str) -> Tensor:
        return self.mapped(name).to(self._device, self._dtype)

    def find(self, name: str) -> Tensor | None:
        return self.get(name) if name in self._files else None


def shape_of(name: str, config: ModelConfig) -> tuple[int, ...]:
    """Of a parameter of the Llama family, by its name: ``[out, in]`` of a projection, ``[size]`` of a vector."""
    *_, module, kind = name.split(".")
    hidden, inner = config.hidden_size, config.intermediate_size
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    sizes = {
        "embed_tokens": (config.vocab_size, hidden),
        "lm_head": (config.vocab_size, hidden),
        "q_proj": (heads, hidden),
        "k_proj": (kv_heads, hidden),
        "v_proj": (kv_heads, hidden),
        "o_proj": (hidden, heads),
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
        "q_norm": (config.head_dim,),
        "k_norm": (config.head_dim,),
    }
    size = sizes.get(module, (hidden,))  # other norms
    return size[:1] if kind == "bias" else size


def _files(folder: Path) -> dict[str, Path]:
    """Which file holds each tensor."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return {name: folder / file for name, file in json.loads(index.read_text())["weight_map"].items()}
    single = folder / "model.safetensors"
    if not single.exists():
        raise ModelError(f"{folder}: neither model.safetensors nor model.safetensors.index.json is there")
    with safe_open(single, framework="pt") as file:
        return dict.fromkeys(file.keys(), single)


def query_key_value(checkpoint: Checkpoint, prefix: str, config: ModelConfig) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the three projections in one, rotary pairs of queries and keys side by side."""
    weights = [checkpoint.get(f"{prefix}.{name}_proj.weight") for name in "qkv"]
    biases = [checkpoint.find(f"{prefix}.{name}_proj.bias") for name in "qkv"]
    weight = torch.cat([*(interleave(part, config.head_dim) for part in weights[:2]), weights[2]])
    if any(bias is None for bias in biases):
        return weight, None
    query, key, value = (bias for bias in biases if bias is not None)
    return weight, torch.cat([interleave(query, config.head_dim), interleave(key, config.head_dim), value])


def head_norms(checkpoint: Checkpoint, prefix: str, config: ModelConfig) -> Tensor | None:
    """Weights of the norms of queries and keys, a row a head ``[heads + kv_heads, head_dim]``, if there are any."""
    query, key = (checkpoint.find(f"{prefix}.{name}_norm.weight") for name in "qk")
    if query is None or key is None:
        return None
    rows = [interleave(query, config.head_dim)] * config.num_heads + [
        interleave(key, config.head_dim)
    ] * config.num_kv_heads
    return torch.stack(rows)


def gate_up(checkpoint: Checkpoint, prefix: str) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the gate and up projections in one."""
    weight = torch.cat([checkpoint.get(f"{prefix}.{name}_proj.weight") for name in ("gate", "up")])
    biases = [checkpoint.find(f"{prefix}.{name}_proj.bias") for name in ("gate", "up")]
    return weight, torch.cat([bias for bias in biases if bias is not None]) if biases[0] is not None else None
