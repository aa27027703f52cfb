"""Weights in GGUF's blocks, of kinds that the gguf library writes and of those that it only reads."""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import quantize
from numpy.typing import NDArray

# Where a block has its float16 factors, and what makes random codes stand for numbers about as large as 1.
DRAWN = {
    GGMLQuantizationType.Q4_K: {0: 0.007, 2: 0.05},
    GGMLQuantizationType.Q5_K: {0: 0.0035, 2: 0.05},
    GGMLQuantizationType.Q6_K: {208: 0.0007},
}


def quantized(values: NDArray[np.float32], kind: GGMLQuantizationType) -> NDArray[np.uint8]:
    """Rows of blocks ``[out, bytes]`` for values ``[out, in]``; K-quants are sampled instead, every byte of them."""
    if kind not in DRAWN:
        return quantize(values, kind)
    num_weights, num_bytes = GGML_QUANT_SIZES[kind]
    num_out, num_in = values.shape
    sampled = np.random.default_rng(values.size)
    blocks = sampled.integers(0, 256, (num_out * num_in // num_weights, num_bytes), dtype=np.uint8)
    for start, factor in DRAWN[kind].items():
        factors = (factor * sampled.uniform(0.5, 1.5, len(blocks))).astype(np.float16)
        blocks[:, start : start + 2] = factors.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(num_out, -1)
