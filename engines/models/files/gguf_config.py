"""``config.json`` of a model whose GGUF file says the same under llama.cpp's keys, or leaves to llama.cpp to know."""

import math
from collections.abc import Mapping
from typing import Any, Protocol

from engines.models.files.architectures import ARCHITECTURES, Architecture, NormKind, WindowLayers

# Where llama.cpp scales attention by the hidden size over the heads: the 27B models of Gemma, by their layers.
_SCALED_BY_HIDDEN_SIZE = {"gemma2": 46, "gemma3_text": 62}
_NORMALISES_EXPERTS = ("qwen3_moe", "mixtral")


class GgufKeys(Protocol):
    def parameter(self, key: str, default: Any = None) -> Any:
        """Return a key of the architecture. Raise `ModelError` if it is missing and there is no default."""


def model_type_of(gguf_architecture: str, has_experts: bool) -> str | None:
    """Return the ``model_type`` of such a file; None: the torch engine has no such decoder."""
    if gguf_architecture == "llama":
        return "mixtral" if has_experts else "llama"
    found = [name for name, row in ARCHITECTURES.items() if row.gguf == gguf_architecture]
    return found[0] if found else None


def gguf_architectures() -> list[str]:
    return list(dict.fromkeys(row.gguf for row in ARCHITECTURES.values() if row.gguf is not None))


def model_keys(model_type: str, keys: GgufKeys, vocab_size: int, has: "StoredTensors") -> dict[str, Any]:
    """Return ``config.json``, but for the ids of tokens and stretched RoPE."""
    architecture = ARCHITECTURES[model_type]
    num_heads, hidden = keys.parameter("attention.head_count"), keys.parameter("embedding_length")
    head_dim = keys.parameter("attention.key_length", hidden // num_heads)
    config = {
        "architectures": [architecture.transformers],
        "model_type": model_type,
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "intermediate_size": keys.parameter("feed_forward_length"),
        "num_hidden_layers": keys.parameter("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": keys.parameter("attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "max_position_embeddings": keys.parameter("context_length"),
        "attention_bias": has.attention_bias,
        "use_bias": has.attention_bias,
        "mlp_bias": has.mlp_bias,
        "tie_word_embeddings": not has.head,
        "torch_dtype": "float32",
        **_norm(architecture, keys),
        **_rope(model_type, architecture, keys, head_dim),
        **_attention(model_type, architecture, keys, head_dim),
        **_experts(model_type, architecture, keys),
    }
    if "hidden_act" not in architecture.defaults:
        config["hidden_act"] = "silu"
    return config


class StoredTensors(Protocol):
    """Which tensors a file has."""

    @property
    def attention_bias(self) -> bool: ...

    @property
    def mlp_bias(self) -> bool: ...

    @property
    def head(self) -> bool: ...


def _norm(architecture: Architecture, keys: GgufKeys) -> dict[str, Any]:
    if architecture.norm is NormKind.LAYER:
        epsilon = keys.parameter("attention.layer_norm_epsilon", 1e-5)
        return {"layer_norm_eps": epsilon, "norm_epsilon": epsilon}
    return {"rms_norm_eps": keys.parameter("attention.layer_norm_rms_epsilon", 1e-6)}


def _rope(model_type: str, architecture: Architecture, keys: GgufKeys, head_dim: int) -> dict[str, Any]:
    theta = keys.parameter("rope.freq_base", 10000.0)
    rope: dict[str, Any] = {"rope_theta": theta}
    factor = keys.parameter("rope.dimension_count", head_dim) / head_dim
    if "use_parallel_residual" in architecture.defaults:
        rope["use_parallel_residual"] = keys.parameter("use_parallel_residual", True)
    if model_type == "gpt_neox":
        return rope | {"rotary_emb_base": theta, "rotary_pct": factor}
    if "rope_local_base_freq" in architecture.defaults:
        local = architecture.defaults["rope_local_base_freq"]
        rope["rope_local_base_freq"] = keys.parameter("rope.freq_base_swa", local)
    return rope if factor == 1 else rope | {"partial_rotary_factor": factor}


def _attention(model_type: str, architecture: Architecture, keys: GgufKeys, head_dim: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if architecture.windows in (WindowLayers.EVERY, WindowLayers.PATTERN):
        found["sliding_window"] = keys.parameter("attention.sliding_window", 0) or None
    if architecture.windows is WindowLayers.PATTERN and found["sliding_window"]:
        num_layers, every = keys.parameter("block_count"), architecture.defaults["sliding_window_pattern"]
        kinds = ["full_attention" if (number + 1) % every == 0 else "sliding_attention" for number in range(num_layers)]
        found["layer_types"] = kinds
    if "query_pre_attn_scalar" in architecture.defaults:
        is_27b = keys.parameter("block_count") == _SCALED_BY_HIDDEN_SIZE[model_type]
        of_hidden = keys.parameter("embedding_length") // keys.parameter("attention.head_count")
        found["query_pre_attn_scalar"] = of_hidden if is_27b else head_dim
    if "attn_logit_softcapping" in architecture.defaults:
        found["attn_logit_softcapping"] = keys.parameter("attn_logit_softcapping", 50.0)
        found["final_logit_softcapping"] = keys.parameter("final_logit_softcapping", 30.0)
    return found


def _experts(model_type: str, architecture: Architecture, keys: GgufKeys) -> dict[str, Any]:
    num_experts = keys.parameter("expert_count", 0)
    if not num_experts:
        return {}
    name = "num_local_experts" if model_type == "mixtral" else "num_experts"
    found = {
        name: num_experts,
        "num_experts_per_tok": keys.parameter("expert_used_count"),
        "norm_topk_prob": model_type in _NORMALISES_EXPERTS,
    }
    if model_type == "mixtral":
        return found
    inner = keys.parameter("expert_feed_forward_length")
    shared = keys.parameter("expert_shared_feed_forward_length", 0)
    return found | {"moe_intermediate_size": inner} | ({"shared_expert_intermediate_size": shared} if shared else {})


def long_factors(keys: GgufKeys, long: list[float], short: list[float]) -> dict[str, Any]:
    """Return the ``rope_scaling`` of Phi-3's long and short factors."""
    scaling: dict[str, Any] = {"rope_type": "longrope", "long_factor": long, "short_factor": short}
    before = keys.parameter("rope.scaling.original_context_length")
    scaling["original_max_position_embeddings"] = before
    context, factor = keys.parameter("context_length"), keys.parameter("rope.scaling.attn_factor", 0)
    usual = math.sqrt(1 + math.log(max(1.0, context / before)) / math.log(before))
    return (
        scaling if not factor or math.isclose(factor, usual, rel_tol=1e-5) else {**scaling, "attention_factor": factor}
    )


def stretched(keys: GgufKeys) -> Mapping[str, Any] | None:
    """Return the ``rope_scaling`` that the file says in keys; None: its RoPE is plain."""
    kind = keys.parameter("rope.scaling.type", "none")
    if kind in ("none", "longrope"):
        return None
    scaling = {"rope_type": kind, "factor": keys.parameter("rope.scaling.factor")}
    original = keys.parameter("rope.scaling.original_context_length", 0)
    return scaling | ({"original_max_position_embeddings": original} if original else {})
