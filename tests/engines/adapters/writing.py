"""Writes adapters as PEFT does, without it: many, and wrong ones."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from engines.adapters.config import CONFIG_FILE, LLAMA_PROJECTIONS
from engines.adapters.folder import WEIGHTS_FILE
from engines.models.files.layer_shapes import has_projection, projection_shapes
from engines.models.files.model_config import ModelConfig


def write_adapter(
    folder: Path,
    model: ModelConfig,
    rank: int = 4,
    alpha: float = 8,
    targets: Iterable[str] = LLAMA_PROJECTIONS,
    layers: Iterable[int] | None = None,
    seed: int = 0,
    scale: float = 0.3,
    **config: Any,
) -> Path:
    """Random factors for a model; answer the folder. ``config``: further keys of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = model.architecture.modules.layers
    random, tensors = np.random.default_rng(seed), {}
    for layer in range(model.num_layers) if layers is None else layers:
        for target in targets:
            for name, num_out, num_in in modules_of(model, layer, target):
                full = f"base_model.model.{prefix}.{layer}.{name}"
                tensors[f"{full}.lora_A.weight"] = random.normal(0, scale, (rank, num_in)).astype(np.float32)
                tensors[f"{full}.lora_B.weight"] = random.normal(0, scale, (num_out, rank)).astype(np.float32)
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


def modules_of(model: ModelConfig, layer: int, target: str) -> Iterator[tuple[str, int, int]]:
    """Modules of a layer that a target means, each expert's apart, with outputs and inputs."""
    for name, (num_out, num_in) in projection_shapes(model).items():
        if target in (name, name.rpartition(".")[2]):
            own, dot, leaf = name.partition(".experts.")
            number = 1 if not dot or model.experts is None else model.experts.num_experts
            for expert in range(number):
                full = f"{own}{dot}{expert}.{leaf}" if dot else name
                if layer >= model.num_layers or has_projection(model, layer, full):
                    yield full, num_out, num_in
