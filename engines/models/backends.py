"""Backends that run a model, told from its configuration, for those who named one that does not."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.files.vllm_architectures import VLLM_ARCHITECTURES


def check_torch_runs(folder: Path, config: ModelConfig) -> None:
    """Raise `ModelError` with the reason and the backends that would, unless the torch engine runs the model."""
    if not _torch_has(config):
        raise ModelError(f"{folder}: {config.fault}; {_advice(backends_of(folder, config))}")


def check_some_run(folder: Path, config: ModelConfig) -> None:
    """Raise `ModelError` if no backend runs the model."""
    if not backends_of(folder, config):
        check_torch_runs(folder, config)


def backends_of(folder: Path, config: ModelConfig) -> list[str]:
    """Return the backends whose libraries have such a model: ``torch``, ``transformers``, ``vllm``."""
    runs: Mapping[str, Callable[[], bool]] = {
        "torch": lambda: _torch_has(config),
        "transformers": lambda: config.quantization is None and _transformers_has(config.model_type),
        "vllm": lambda: any(name in VLLM_ARCHITECTURES for name in _classes(folder)),
    }
    return [backend for backend, does in runs.items() if does()]


def _advice(backends: list[str]) -> str:
    if not backends:
        return "no backend runs it"
    return " and ".join(f'backend = "{backend}"' for backend in backends) + " would run it"


def _torch_has(config: ModelConfig) -> bool:
    return not config.fault or config.encoder is not None


def _transformers_has(model_type: str) -> bool:
    """Asked only when something is refused: the library takes seconds to import."""
    try:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    except ImportError:
        return False
    return model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def _classes(folder: Path) -> list[str]:
    """What ``config.json`` calls the model's classes, which is how vLLM chooses its own."""
    found = json.loads((folder / "config.json").read_text()).get("architectures") or []
    return [str(name) for name in found]
