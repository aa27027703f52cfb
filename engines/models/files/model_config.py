"""The shape of a Llama-family model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.models.files.hf_config import HfConfig, read_config, read_generation, token_ids


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything an engine must know besides the weights."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None  # None: plain RoPE; otherwise ``rope_type`` is linear, llama3 or yarn
    max_position_embeddings: int
    max_context: int  # tokens, prompt and answer, that full attention serves correctly
    sliding_window: int | None
    tie_word_embeddings: bool
    attention_bias: bool  # of the Q, K and V projections
    qk_norm: bool
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    dtype: str  # of the checkpoint

    @classmethod
    def load(cls, folder: Path) -> "ModelConfig":
        """Read ``config.json``, and the end-of-sequence ids of ``generation_config.json`` where there is one."""
        raw = read_config(folder / "config.json")
        generation = read_generation(folder / "generation_config.json")
        return cls.of(raw, token_ids(raw.eos_token_id) + token_ids(generation.eos_token_id))

    @classmethod
    def of(cls, raw: HfConfig, eos_token_ids: tuple[int, ...]) -> "ModelConfig":
        return cls(
            model_type=raw.model_type,
            vocab_size=raw.vocab_size,
            hidden_size=raw.hidden_size,
            intermediate_size=raw.intermediate_size,
            num_layers=raw.num_hidden_layers,
            num_heads=raw.num_attention_heads,
            num_kv_heads=raw.num_key_value_heads or raw.num_attention_heads,
            head_dim=raw.head_dim or raw.hidden_size // raw.num_attention_heads,
            rms_norm_eps=raw.rms_norm_eps,
            rope_theta=raw.theta,
            rope_scaling=raw.scaling,
            max_position_embeddings=raw.max_position_embeddings,
            max_context=min(_stretched_context(raw), raw.window or _stretched_context(raw)),
            sliding_window=raw.window,
            tie_word_embeddings=raw.tie_word_embeddings,
            attention_bias=raw.attention_bias or raw.model_type == "qwen2",
            qk_norm=raw.model_type == "qwen3",
            bos_token_id=raw.bos_token_id,
            eos_token_ids=tuple(dict.fromkeys(eos_token_ids)),
            dtype=raw.dtype or raw.torch_dtype or "float32",
        )


def _stretched_context(raw: HfConfig) -> int:
    """Tokens that the model can attend to. Llama 3's files give the stretched length, others the length before."""
    if raw.scaling is None or raw.rope_type == "llama3":
        return raw.max_position_embeddings
    before = raw.scaling.get("original_max_position_embeddings") or raw.max_position_embeddings
    return max(raw.max_position_embeddings, int(before * raw.scaling["factor"]))
