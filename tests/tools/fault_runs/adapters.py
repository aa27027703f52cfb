"""Small LoRA adapters for runs with faults: of what they compute nothing is looked at."""

import json
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from engines.adapters.config import CONFIG_FILE
from engines.adapters.folder import WEIGHTS_FILE
from mesh.process.whole_file import write_whole

RANK, WIDTH = 4, 16
SMALL_BYTES = 2 * RANK * WIDTH * 4  # in float32


@cache
def write_small(root: Path, name: str) -> Path:
    """Return a folder with one. It is the same whoever writes it, and at once."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    site, weights = "base_model.model.model.layers.0.self_attn.q_proj", np.zeros((RANK, WIDTH), np.float32)
    weights += len(name)
    write_whole(
        folder / WEIGHTS_FILE, save({f"{site}.lora_A.weight": weights, f"{site}.lora_B.weight": weights.T.copy()})
    )
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "bias": "none"}
    write_whole(folder / CONFIG_FILE, json.dumps(config).encode())
    return folder
