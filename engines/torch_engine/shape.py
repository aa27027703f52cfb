"""The shape of a service's KV blocks, known before any tensor exists, and the size of its weights."""

import torch

from engines.models.files.model_config import ModelConfig
from mesh.wire.transfers import KVShape

DTYPES = ("float32", "bfloat16", "float16", "int8")


def compute_dtype(dtype: str) -> str:
    """The dtype of activations and KV, and of weights that are not in codes."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is unknown; one of {', '.join(DTYPES)} would be right")
    return "float32" if dtype == "int8" else dtype


def weight_bytes(config: ModelConfig, dtype: str, device: str) -> int:
    """Return the bytes of a loaded model in floats. On CPU, embeddings are rows of the file, read when they are asked
    for.
    """
    heads = config.num_heads + 2 * config.num_kv_heads
    outs = [heads * config.head_dim, config.hidden_size, 2 * config.intermediate_size, config.hidden_size]
    ins = [config.hidden_size, config.num_heads * config.head_dim, config.hidden_size, config.intermediate_size]
    products = sum(num_out * num_in for num_out, num_in in zip(outs, ins, strict=True))
    rows = config.vocab_size * config.hidden_size
    num_weights = config.num_layers * products + rows
    item_bytes: int = getattr(torch, compute_dtype(dtype)).itemsize
    return (num_weights + (0 if device == "cpu" else rows)) * item_bytes


def kv_shape(config: ModelConfig, dtype: str, block_size: int) -> KVShape:
    return KVShape(config.num_layers, config.num_kv_heads, config.head_dim, block_size, compute_dtype(dtype))
