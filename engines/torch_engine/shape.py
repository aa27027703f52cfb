"""The shape of a service's KV blocks, known before any tensor exists."""

from engines.models.files.model_config import ModelConfig
from engines.torch_engine.layers.cpu_kernels import keeps_codes
from mesh.wire.transfers import KVShape

DTYPES = ("float32", "bfloat16", "float16", "int8")
ENCODER_HEAD_DIM = 32  # of KV that is never written


def float_dtype(dtype: str) -> str:
    """The dtype of KV, and of weights and activations where kernels for processors do not compute."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is unknown; one of {', '.join(DTYPES)} would be right")
    return "float32" if dtype == "int8" else dtype


def compute_dtype(dtype: str, device: str) -> str:
    """The dtype of activations on that kind of device, and of weights that `CodeLinear` does not take."""
    return "float32" if keeps_codes(dtype, device) else float_dtype(dtype)


def kv_shape(config: ModelConfig, dtype: str, block_size: int, kv_dtype: str | None = None) -> KVShape:
    """Return the shape of a block. ``kv_dtype`` None: that of ``dtype``. Encoders keep no KV: their requests hold small
    blocks, by which memory is shared.
    """
    if config.encoder is not None:
        return KVShape(1, 1, ENCODER_HEAD_DIM, block_size, float_dtype(dtype))
    kept = kv_dtype or float_dtype(dtype)
    return KVShape(config.num_layers, config.num_kv_heads, config.head_dim, block_size, kept)
