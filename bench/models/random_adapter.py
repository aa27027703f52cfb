"""A LoRA adapter of random factors for a model, as PEFT saves one: for benches of speed."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from engines.adapters.config import CONFIG_FILE
from engines.adapters.folder import WEIGHTS_FILE, AdapterFolder
from engines.models.files.layer_shapes import projection_shapes
from engines.models.files.model_config import ModelConfig


def write_random_adapter(folder: Path, model: ModelConfig, rank: int, seed: int) -> AdapterFolder:
    """All projections of all layers. The model has no experts."""
    folder.mkdir(parents=True)
    generator, tensors = torch.Generator().manual_seed(seed), dict[str, Tensor]()
    for layer in range(model.num_layers):
        for projection, (num_out, num_in) in projection_shapes(model).items():
            name = f"base_model.model.model.layers.{layer}.{projection}"
            tensors[f"{name}.lora_A.weight"] = 0.02 * torch.randn((rank, num_in), generator=generator)
            tensors[f"{name}.lora_B.weight"] = 0.02 * torch.randn((num_out, rank), generator=generator)
    save_file(tensors, folder / WEIGHTS_FILE)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none"}
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    return AdapterFolder.read(folder)
