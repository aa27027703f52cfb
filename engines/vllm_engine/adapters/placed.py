"""LoRA adapters in one of vLLM's workers: our files in its places, and nothing that its model has no module for."""

from typing import Any

import torch
from safetensors import safe_open
from vllm.lora.lora_model import LoRAModel
from vllm.lora.lora_weights import LoRALayerWeights
from vllm.lora.utils import parse_fine_tuned_lora_name

from engines.adapters.folder import WEIGHTS_FILE, AdapterFolder
from engines.adapters.places import is_of_experts, largest_rank
from engines.adapters.sites import StackedFactors


class PlacedAdapters:
    """Adapters by numbers, which `LoRARequest` names as well. ``manager``: vLLM's, of the worker."""

    def __init__(self, manager: Any, dtype: torch.dtype) -> None:
        self._manager = manager
        self._dtype = dtype
        self._read: dict[int, Any] = {}

    def read(self, number: int, adapter: AdapterFolder) -> str:
        """Read the files, beside what is computed. Return what is wrong with them; empty if nothing is."""
        mapper = getattr(self._manager.model, "hf_to_vllm_mapper", None)
        renames, layers = None if mapper is None else mapper.get_rename_mapper(), {}
        with safe_open(adapter.path / WEIGHTS_FILE, framework="pt") as file:
            for module, factors in adapter.modules.items():
                if isinstance(factors, StackedFactors) or is_of_experts(module.name):
                    return f"{module} is of experts, which vLLM engines compute without adapters"
                name, _ = parse_fine_tuned_lora_name(factors.a.replace(".default.weight", ".weight"), renames)
                a, b = (file.get_tensor(tensor).to(self._dtype) for tensor in (factors.a, factors.b))
                layers[name] = LoRALayerWeights(name, factors.rank, factors.rank, a, b, factors.scaling)
        self._read[number] = LoRAModel(number, largest_rank(adapter.config), layers)
        return ""

    def place(self, number: int) -> str:
        """Put it where steps find it. Return what the model has not; empty if it has all that the adapter changes."""
        lora = self._read.pop(number)
        self._manager.add_adapter(lora)  # which joins projections that the model computes as one
        if foreign := sorted(lora.loras.keys() - self._manager.modules.keys()):
            return f"{foreign[0]} is no projection of its own in this model"
        self._manager.activate_adapter(number)
        return ""

    def drop(self, number: int) -> None:
        """Forget it, however far it came."""
        self._read.pop(number, None)
        self._manager.remove_adapter(number)
