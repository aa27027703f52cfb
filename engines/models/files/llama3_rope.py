"""Llama 3's stretched RoPE, recognised from the factors that GGUF files store in place of its parameters."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.models.errors import ModelError

# The parameters that all Llama 3.1, 3.2 and 3.3 models share.
_LOW_FREQ_FACTOR = 1.0
_HIGH_FREQ_FACTOR = 4.0
_ORIGINAL_CONTEXT = 8192


def llama3_scaling(factors: NDArray[np.float32], theta: float, head_dim: int, path: Path) -> dict[str, Any]:
    """The ``rope_scaling`` that divides the frequencies by ``factors`` [d / 2]. Raises `ModelError` if none does."""
    factor = float(factors.max())
    if not np.allclose(factors, _factors(factor, theta, head_dim), rtol=1e-3):
        raise ModelError(f"{path}: its RoPE frequencies are not those of Llama 3; take the model's safetensors folder")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LOW_FREQ_FACTOR,
        "high_freq_factor": _HIGH_FREQ_FACTOR,
        "original_max_position_embeddings": _ORIGINAL_CONTEXT,
    }


def _factors(factor: float, theta: float, head_dim: int) -> NDArray[np.float64]:
    """Waves that turn often within the original context are kept, those that hardly turn slowed, the rest blended."""
    frequencies = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = _ORIGINAL_CONTEXT * frequencies / (2 * math.pi)
    keep = np.clip((turns - _LOW_FREQ_FACTOR) / (_HIGH_FREQ_FACTOR - _LOW_FREQ_FACTOR), 0, 1)
    slowed: NDArray[np.float64] = 1 / ((1 - keep) / factor + keep)
    return slowed
