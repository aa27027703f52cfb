"""``config.json`` as Hugging Face writes it: the keys that matter here, whatever a family calls them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from engines.models.errors import ModelError
from engines.models.files.architectures import ARCHITECTURES
from engines.models.files.encoder_config import ENCODER_TYPES, HfEncoder

FULL, SLIDING = "full_attention", "sliding_attention"  # types of layers

# What other names a key has. The first that is there counts.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "dim", "model_dim"),
    "intermediate_size": ("ffn_hidden_size", "ffn_dim", "n_inner"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("n_head_kv", "num_kv_heads", "multi_query_group_num"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx"),
    "vocab_size": ("padded_vocab_size",),
    "hidden_act": ("hidden_activation", "activation_function"),
    "rms_norm_eps": ("layer_norm_eps", "norm_epsilon", "layer_norm_epsilon"),
    "rope_theta": ("rotary_emb_base",),
    "partial_rotary_factor": ("rotary_pct",),
    "num_experts": ("num_local_experts",),
}

T = TypeVar("T")


class HfGeneration(msgspec.Struct, frozen=True):
    eos_token_id: int | list[int] | None = None


class HfConfig(msgspec.Struct, frozen=True):
    """Absent keys take the defaults of transformers."""

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    intermediate_size: int = 0
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_local_base_freq: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None  # since transformers 5: rope_theta and rope_scaling in one
    original_max_position_embeddings: int | None = None
    partial_rotary_factor: float = 1.0
    sliding_window: int | None = None
    use_sliding_window: bool | None = None
    sliding_window_pattern: int | None = None
    max_window_layers: int = 0
    layer_types: list[str] | None = None
    no_rope_layers: list[int] | None = None  # despite its name: 1 where there is one
    no_rope_layer_interval: int | None = None
    query_pre_attn_scalar: float | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    use_parallel_residual: bool = False
    use_bidirectional_attention: bool | str | None = None
    tie_word_embeddings: bool = False
    num_experts: int | None = None
    num_experts_per_tok: int = 0
    moe_intermediate_size: int | None = None
    shared_expert_intermediate_size: int | None = None
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None
    norm_topk_prob: bool = False
    bos_token_id: int | list[int] | None = None
    eos_token_id: int | list[int] | None = None
    dtype: str | None = None
    torch_dtype: str | None = None  # the older name of dtype
    quantization_config: dict[str, Any] | None = None
    matryoshka_dimensions: list[int] | None = None

    def rope(self, layer_type: str) -> Mapping[str, Any]:
        """The RoPE of layers of one type: ``rope_theta``, ``rope_type``, and what a stretched one has besides."""
        found = self.rope_parameters or self.rope_scaling or {}
        is_local = layer_type == SLIDING and self.rope_local_base_freq is not None
        if FULL in found or SLIDING in found:
            found = found.get(layer_type) or {}
        elif is_local:
            found = {}
        theta = self.rope_local_base_freq if is_local else self.rope_theta
        kind = str(found.get("rope_type", found.get("type", "default")))
        if self.model_type == "phi3" and kind in ("su", "yarn"):
            kind = "longrope"
        factor = found.get("partial_rotary_factor", self.partial_rotary_factor)
        return {"rope_theta": theta, **found, "rope_type": kind, "partial_rotary_factor": factor}


def read_encoder(path: Path) -> HfEncoder | None:
    """Read the configuration of an encoder; None if it is of something else. Raise `ModelError` if it says what is not
    supported.
    """
    data = _bytes(path)
    if _decode(data, dict[str, Any], path).get("model_type") not in ENCODER_TYPES:
        return None
    encoder = _decode(data, HfEncoder, path)
    for fault in encoder.faults():
        raise ModelError(f"{path}: {fault}")
    return encoder


def read_config(path: Path) -> HfConfig:
    """Read the configuration of any decoder. Raise `ModelError` if keys that all have are not there."""
    raw = _decode(_bytes(path), dict[str, Any], path)
    family = raw.get("model_type")
    if not isinstance(family, str):
        raise ModelError(f"{path}: model_type {family!r} should be a name, such as 'llama'")
    if isinstance(raw.get("text_config"), dict):  # of a model that reads images, too
        raw = _shared(raw) | raw["text_config"] | {"model_type": family}
    architecture = ARCHITECTURES.get(family)
    defaults = {} if architecture is None else architecture.defaults
    named = {key: value for key, value in _named(raw).items() if value is not None or key not in _NEVER_NULL}
    try:
        return msgspec.convert({**defaults, **named}, HfConfig)
    except msgspec.ValidationError as error:
        raise ModelError(f"{path}: {error}") from error


# Where null is what an absent key is: elsewhere it is a value of its own, such as that of a window that is off.
_NEVER_NULL = frozenset(field.name for field in msgspec.structs.fields(HfConfig) if field.default is not None)


def _shared(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What the configuration of a model that reads images says of its text part, too."""
    keys = ("tie_word_embeddings", "eos_token_id", "bos_token_id", "dtype", "torch_dtype", "quantization_config")
    return {key: raw[key] for key in keys if key in raw}


def _named(raw: Mapping[str, Any]) -> dict[str, Any]:
    """By the names that `HfConfig` has."""
    found = dict(raw)
    for name, others in ALIASES.items():
        given = next((raw[other] for other in others if raw.get(other) is not None), None)
        if raw.get(name) is None and given is not None:
            found[name] = given
    return found


def read_generation(path: Path) -> HfGeneration:
    """An absent file says nothing."""
    return _decode(_bytes(path), HfGeneration, path) if path.exists() else HfGeneration()


def token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    """One id, several or none, as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error


def _decode(data: bytes, kind: type[T], path: Path) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise ModelError(f"{path}: {error}") from error
    except msgspec.DecodeError as error:
        raise ModelError(f"{path}: no JSON, or cut short: {error}") from error
