"""Reads ``adapter_config.json`` as PEFT writes it. What would change an answer and is not computed here is refused."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engines.models.errors import ModelError

CONFIG_FILE: Final = "adapter_config.json"
MOST_BYTES: Final = 2**20  # of the file
MOST_RANK: Final = 512
LLAMA_PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PROJECTIONS: Final = (
    *LLAMA_PROJECTIONS,
    *("qkv_proj", "gate_up_proj"),  # Phi-3
    *("w1", "w2", "w3"),  # experts of Mixtral
    *("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"),  # GPT-NeoX, and Phi's dense
    *("fc1", "fc2"),  # Phi
    *("c_fc", "c_proj"),  # StarCoder2
)
STACKED_UP, STACKED_DOWN = "gate_up_proj", "down_proj"  # parameters of all experts of a layer
MERGE = "merge it into the model, or train it without"
# Keys that are wrong if they are set, and why.
REFUSED: Final = {
    "use_dora": "DoRA adapters are not served",
    "modules_to_save": "whole modules beside the low-rank ones are not served",
    "trainable_token_indices": "trained embeddings are not served",
    "lora_bias": "adapters with biases are not served",
    "fan_in_fan_out": "transposed weights are not served",
    "layer_replication": "repeated layers are not served",
    "use_qalora": "QALoRA adapters are not served",
    "megatron_config": "adapters of Megatron's layers are not served",
    "alora_invocation_tokens": "activated adapters (aLoRA) are not served",
}
# Ways to begin training that change the model's own weights: without those, the adapter means something else.
CHANGES_BASE: Final = ("pissa", "olora", "corda", "loftq", "lora_ga")


# Patterns of modules as PEFT writes them: names, perhaps after anything.
_PATTERN: Final = re.compile(r"\^?(?:\.\*\\?\.)?\w+(?:\\?\.\w+){0,9}\$?\Z")
MOST_PATTERNS: Final = 256


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What the file says. A product is ``x @ weight.T + scaling * (x @ a.T) @ b.T``.

    ``ranks`` and ``alphas``: of modules that match, where they differ. ``changes_stacked``: it
    changes parameters of all experts of a layer at once.
    """

    rank: int
    alpha: float
    is_rank_stable: bool = False
    ranks: Mapping[str, int] = field(default_factory=dict)
    alphas: Mapping[str, float] = field(default_factory=dict)
    changes_stacked: bool = False

    @classmethod
    def load(cls, folder: Path) -> "AdapterConfig":
        """Raise `ModelError` for what cannot be read or is not computed."""
        path = folder / CONFIG_FILE
        raw = _read(path)
        for problem in _problems(raw):
            raise ModelError(f"{path}: {problem}")
        return cls(
            rank=raw["r"],
            alpha=float(raw.get("lora_alpha", 8)),
            is_rank_stable=bool(raw.get("use_rslora")),
            ranks=dict(raw.get("rank_pattern") or {}),
            alphas={key: float(alpha) for key, alpha in (raw.get("alpha_pattern") or {}).items()},
            changes_stacked=bool(raw.get("target_parameters")),
        )

    def rank_of(self, module: str) -> int:
        """Return the rank of a module of the model, or of one expert in it."""
        return next((rank for pattern, rank in self.ranks.items() if _matches(pattern, module)), self.rank)

    def scaling_of(self, module: str, rank: int) -> float:
        alpha = next((alpha for pattern, alpha in self.alphas.items() if _matches(pattern, module)), self.alpha)
        return alpha / (rank**0.5 if self.is_rank_stable else rank)


def _matches(pattern: str, module: str) -> bool:
    """As PEFT compares them."""
    return re.match(rf"(.*\.)?({pattern})$", f"model.{module}") is not None


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


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
    yield from _wrong_parameters(raw.get("target_parameters") or [])


def _wrong_numbers(raw: Mapping[str, Any]) -> Iterator[str]:
    rank, alpha = raw.get("r"), raw.get("lora_alpha", 8)
    if not _is_rank(rank):
        yield f"r = {_short(rank)}: use a rank from 1 to {MOST_RANK}"
    if not _is_scale(alpha):
        yield f"lora_alpha = {_short(alpha)}: use a number"
    for key, is_right in (("rank_pattern", _is_rank), ("alpha_pattern", _is_scale)):
        yield from _wrong_patterns(key, raw.get(key) or {}, is_right)


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_RANK


def _is_scale(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e6


def _wrong_patterns(key: str, patterns: object, is_right: Callable[[object], bool]) -> Iterator[str]:
    if not isinstance(patterns, dict) or len(patterns) > MOST_PATTERNS:
        yield f"{key}: at most {MOST_PATTERNS} names of modules with a number each are served"
        return
    for name, value in patterns.items():
        if len(name) > 200 or not _PATTERN.match(name):
            yield f"{key}: {_short(name)} is not served; name the modules, as layers.3.self_attn.q_proj"
        elif not is_right(value):
            yield f"{key}: {_short(name)} = {_short(value)}: use a number that r or lora_alpha may be"


def _wrong_parameters(parameters: object) -> Iterator[str]:
    """Of whole parameters PEFT changes those of stacked experts, where transformers 5 has such."""
    for target in parameters if isinstance(parameters, list) else [parameters]:
        if not isinstance(target, str) or _leaf(target) not in (STACKED_UP, STACKED_DOWN):
            yield f"target_parameters: {_short(target)} is not served; use mlp.experts.{STACKED_UP} or .{STACKED_DOWN}"


def _wrong_targets(targets: object) -> Iterator[str]:
    """A pattern says nothing yet: the tensors themselves are looked at."""
    if not isinstance(targets, list):
        return
    for target in targets:
        if not isinstance(target, str) or _leaf(target) not in PROJECTIONS:
            yield f"target_modules: {_short(target)} is not served; use some of {', '.join(PROJECTIONS)}"


def _short(value: object) -> str:
    """Return it as it fits into one line."""
    text = json.dumps(value)
    return text if len(text) <= 64 else f"{text[:61]}..."
