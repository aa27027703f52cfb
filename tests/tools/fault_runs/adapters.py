"""Small LoRA adapters for runs with faults: of what they compute nothing is looked at."""

import json
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
from safetensors.numpy import save

from engines.adapters.config import CONFIG_FILE
from engines.adapters.folder import WEIGHTS_FILE
from mesh.process.whole_file import write_whole

RANK, WIDTH = 4, 16
SMALL_BYTES = 2 * RANK * WIDTH * 4  # in float32


@cache
def write_small(name: str) -> Path:
    """Return a folder with one, as long as this process lives."""
    folder = _root() / name
    folder.mkdir()
    site, weights = "base_model.model.model.layers.0.self_attn.q_proj", np.zeros((RANK, WIDTH), np.float32)
    weights += len(name)
    write_whole(
        folder / WEIGHTS_FILE, save({f"{site}.lora_A.weight": weights, f"{site}.lora_B.weight": weights.T.copy()})
    )
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "bias": "none"}
    write_whole(folder / CONFIG_FILE, json.dumps(config).encode())
    return folder


@cache
def _root() -> Path:
    root = Path(mkdtemp(prefix="meshserve-fault-runs-"))
    Finalize(None, rmtree, (root, True), exitpriority=0)  # also where `multiprocessing` ends a process
    return root
