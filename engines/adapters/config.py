"""Reads ``adapter_config.json`` as PEFT writes it. What would change an answer and is not computed here is refused."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engines.models.errors import ModelError

CONFIG_FILE: Final = "adapter_config.json"
MOST_BYTES: Final = 2**20  # of the file
MOST_RANK: Final = 512
PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MERGE = "merge it into the model, or train it without"
# Keys that are wrong if they are set, and why.
REFUSED: Final = {
    "use_dora": "DoRA adapters are not served",
    "modules_to_save": "whole modules beside the low-rank ones are not served",
    "trainable_token_indices": "trained embeddings are not served",
    "lora_bias": "adapters with biases are not served",
    "fan_in_fan_out": "transposed weights are not served",
    "layer_replication": "repeated layers are not served",
    "rank_pattern": "ranks that differ between modules are not served",
    "alpha_pattern": "scalings that differ between modules are not served",
    "target_parameters": "adapters of single parameters are not served",
    "use_qalora": "QALoRA adapters are not served",
    "megatron_config": "adapters of Megatron's layers are not served",
    "alora_invocation_tokens": "activated adapters (aLoRA) are not served",
}
# Ways to begin training that change the model's own weights: without those, the adapter means something else.
CHANGES_BASE: Final = ("pissa", "olora", "corda", "loftq", "lora_ga")


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What the file says. A product is ``x @ weight.T + scaling * (x @ a.T) @ b.T``."""

    rank: int
    scaling: float

    @classmethod
    def load(cls, folder: Path) -> "AdapterConfig":
        """Raise `ModelError` for what cannot be read or is not computed."""
        path = folder / CONFIG_FILE
        raw = _read(path)
        for problem in _problems(raw):
            raise ModelError(f"{path}: {problem}")
        rank, alpha = raw["r"], raw.get("lora_alpha", 8)
        return cls(rank, float(alpha) / (rank**0.5 if raw.get("use_rslora") else rank))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        what = f"no LoRA adapter of PEFT's form: {CONFIG_FILE} and adapter_model.safetensors are wanted"
        raise ModelError(f"{path}: {error.strerror}; {what}") from None
    if len(text) > MOST_BYTES:
        raise ModelError(f"{path}: is larger than {MOST_BYTES:,} bytes")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: is no JSON; use the file that PEFT saves") from None
    if not isinstance(raw, dict):
        raise ModelError(f"{path}: is no JSON object; use the file that PEFT saves")
    return raw


def _problems(raw: Mapping[str, Any]) -> Iterator[str]:
    if raw.get("peft_type") != "LORA":
        yield f'peft_type = {_short(raw.get("peft_type"))}: only "LORA" is served'
    for key, problem in REFUSED.items():
        if raw.get(key):
            yield f"{key} = {_short(raw[key])}: {problem}; {MERGE}"
    if raw.get("bias", "none") != "none":
        yield f'bias = {_short(raw["bias"])}: adapters with biases are not served; train it with bias = "none"'
    begun = raw.get("init_lora_weights")
    if isinstance(begun, str) and begun.lower().startswith(CHANGES_BASE):
        yield f"init_lora_weights = {_short(begun)}: it changes the model's own weights; save it as a plain LoRA"
    yield from _wrong_numbers(raw)
    yield from _wrong_targets(raw.get("target_modules"))


def _wrong_numbers(raw: Mapping[str, Any]) -> Iterator[str]:
    rank, alpha = raw.get("r"), raw.get("lora_alpha", 8)
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= MOST_RANK:
        yield f"r = {_short(rank)}: use a rank from 1 to {MOST_RANK}"
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not abs(alpha) < 1e6:
        yield f"lora_alpha = {_short(alpha)}: use a number"


def _wrong_targets(targets: object) -> Iterator[str]:
    """A pattern says nothing yet: the tensors themselves are looked at."""
    if not isinstance(targets, list):
        return
    for target in targets:
        if not isinstance(target, str) or target.rpartition(".")[2] not in PROJECTIONS:
            yield f"target_modules: {_short(target)} is not served; use some of {', '.join(PROJECTIONS)}"


def _short(value: object) -> str:
    """For one line."""
    text = json.dumps(value)
    return text if len(text) <= 64 else f"{text[:61]}..."
