"""Writes adapters as PEFT does, without it: many, and wrong ones."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from engines.adapters.config import CONFIG_FILE, PROJECTIONS
from engines.adapters.folder import WEIGHTS_FILE, Site, projection_shape
from engines.models.files.model_config import ModelConfig


def write_adapter(
    folder: Path,
    model: ModelConfig,
    rank: int = 4,
    alpha: float = 8,
    targets: Iterable[str] = PROJECTIONS,
    layers: Iterable[int] | None = None,
    seed: int = 0,
    scale: float = 0.3,
    **config: Any,
) -> Path:
    """Random factors for a model; answer the folder. ``config``: further keys of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    random, tensors = np.random.default_rng(seed), {}
    for layer in range(model.num_layers) if layers is None else layers:
        for target in targets:
            num_out, num_in = projection_shape(target, model)
            name = f"base_model.model.model.{Site(layer, target)}"
            tensors[f"{name}.lora_A.weight"] = random.normal(0, scale, (rank, num_in)).astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = random.normal(0, scale, (num_out, rank)).astype(np.float32)
    save_file(tensors, folder / WEIGHTS_FILE)
    own = {
        "layers_to_transform": None if layers is None else list(layers),
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "bias": "none",
        "target_modules": list(targets),
    }
    (folder / CONFIG_FILE).write_text(json.dumps({**own, **config}))
    return folder
