"""The shape of a model: what every engine must know, and what the torch engine computes its layers by."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.models.errors import ModelError
from engines.models.files.architectures import ARCHITECTURES, Architecture, WindowLayers
from engines.models.files.encoder_config import EncoderShape, HfEncoder
from engines.models.files.hf_config import (
    FULL,
    SLIDING,
    HfConfig,
    read_config,
    read_encoder,
    read_generation,
    token_ids,
)

ROPE_TYPES = ("default", "linear", "llama3", "yarn", "longrope")
ACTIVATIONS = ("silu", "swish", "gelu", "gelu_pytorch_tanh", "gelu_new", "gelu_fast", "relu")


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotary position embedding of the first ``num_dims`` of each head."""

    theta: float
    num_dims: int
    scaling: Mapping[str, Any] | None  # None: plain RoPE; else ``rope_type`` is one of `ROPE_TYPES`


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """Where a layer differs from others. ``window``: tokens that a query sees, its own included; None: all before.

    ``rope``: which one of the model's rotates; None: none does. ``is_sparse``: its MLP is one of experts.
    """

    window: int | None
    rope: int | None
    is_sparse: bool


@dataclass(frozen=True, slots=True)
class Experts:
    """A layer's experts. ``num_chosen`` of them compute a token; ``shared_size``: of one that computes all, or 0.

    ``normalises``: the weights of those chosen add up to 1.
    """

    num_experts: int
    num_chosen: int
    intermediate_size: int
    shared_size: int
    normalises: bool


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything an engine must know besides the weights. ``fault``: why the torch engine does not run it, or empty."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    max_position_embeddings: int
    max_context: int  # tokens, prompt and answer, that are served correctly
    attention_scale: float
    attention_softcap: float | None
    logit_softcap: float | None
    parallel_residual: bool
    tie_word_embeddings: bool
    ropes: tuple[Rope, ...]
    layers: tuple[LayerConfig, ...]
    experts: Experts | None
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    dtype: str  # of the checkpoint
    quantization: str | None  # how its weights are quantised, if they are
    fault: str
    encoder: EncoderShape | None = None  # None: a decoder, which generates
    matryoshka: tuple[int, ...] = ()  # dimensions that its vectors may be cut to

    @property
    def architecture(self) -> Architecture:
        """What its layers are made of. Raise `ModelError` if the torch engine does not know it."""
        if self.fault:
            raise ModelError(self.fault)
        return ARCHITECTURES[self.model_type]

    @classmethod
    def load(cls, folder: Path) -> "ModelConfig":
        """Read ``config.json``, and the end-of-sequence ids of ``generation_config.json`` where there is one."""
        encoder = read_encoder(folder / "config.json")
        if encoder is not None:
            return cls.of_encoder(encoder)
        raw = read_config(folder / "config.json")
        if raw.num_attention_heads % (raw.num_key_value_heads or raw.num_attention_heads):
            raise ModelError(f"{folder}/config.json: num_attention_heads must be a multiple of num_key_value_heads")
        generation = read_generation(folder / "generation_config.json")
        return cls.of(raw, token_ids(raw.eos_token_id) + token_ids(generation.eos_token_id))

    @classmethod
    def of_encoder(cls, raw: HfEncoder) -> "ModelConfig":
        head_dim = raw.hidden_size // raw.num_attention_heads
        return cls(
            model_type=raw.model_type,
            vocab_size=raw.vocab_size,
            hidden_size=raw.hidden_size,
            intermediate_size=raw.intermediate_size,
            num_layers=raw.num_hidden_layers,
            num_heads=raw.num_attention_heads,
            num_kv_heads=raw.num_attention_heads,
            head_dim=head_dim,
            norm_eps=raw.layer_norm_eps,
            activation=raw.hidden_act,
            max_position_embeddings=raw.max_position_embeddings,
            max_context=raw.max_position_embeddings - raw.first_position,
            attention_scale=1 / math.sqrt(head_dim),
            attention_softcap=None,
            logit_softcap=None,
            parallel_residual=False,
            tie_word_embeddings=True,
            ropes=(),
            layers=(),
            experts=None,
            bos_token_id=None,
            eos_token_ids=(),
            dtype=raw.dtype or raw.torch_dtype or "float32",
            quantization=None,
            fault=f"{raw.model_type!r} models are encoders, and generate nothing",
            encoder=EncoderShape.of(raw),
            matryoshka=tuple(sorted(raw.matryoshka_dimensions or ())),
        )

    @classmethod
    def of(cls, raw: HfConfig, eos_token_ids: tuple[int, ...]) -> "ModelConfig":
        head_dim = raw.head_dim or raw.hidden_size // raw.num_attention_heads
        types = _layer_types(raw)
        used = list(dict.fromkeys(types))
        ropes = tuple(_rope(raw, layer_type, head_dim) for layer_type in used)
        quantization = raw.quantization_config
        return cls(
            model_type=raw.model_type,
            vocab_size=raw.vocab_size,
            hidden_size=raw.hidden_size,
            intermediate_size=raw.intermediate_size,
            num_layers=raw.num_hidden_layers,
            num_heads=raw.num_attention_heads,
            num_kv_heads=raw.num_key_value_heads or raw.num_attention_heads,
            head_dim=head_dim,
            norm_eps=raw.rms_norm_eps,
            activation=raw.hidden_act,
            max_position_embeddings=raw.max_position_embeddings,
            max_context=min((_context(raw, rope) for rope in ropes), default=raw.max_position_embeddings),
            attention_scale=1 / math.sqrt(raw.query_pre_attn_scalar or head_dim),
            attention_softcap=raw.attn_logit_softcapping,
            logit_softcap=raw.final_logit_softcapping,
            parallel_residual=raw.use_parallel_residual,
            tie_word_embeddings=raw.tie_word_embeddings,
            ropes=ropes,
            layers=tuple(_layer(raw, number, types[number], used) for number in range(raw.num_hidden_layers)),
            experts=_experts(raw),
            bos_token_id=next(iter(token_ids(raw.bos_token_id)), None),
            eos_token_ids=tuple(dict.fromkeys(eos_token_ids)),
            dtype=raw.dtype or raw.torch_dtype or "float32",
            quantization=None if quantization is None else str(quantization.get("quant_method", "quantised")),
            fault=next(iter(_faults(raw)), ""),
            matryoshka=tuple(sorted(raw.matryoshka_dimensions or ())),
        )


def _layer_types(raw: HfConfig) -> list[str]:
    """Full or sliding, of each layer."""
    listed = raw.layer_types or []
    if raw.sliding_window and len(listed) == raw.num_hidden_layers:
        return [SLIDING if kind == SLIDING else FULL for kind in listed]
    return [SLIDING if _slides(raw, number) else FULL for number in range(raw.num_hidden_layers)]


def _slides(raw: HfConfig, number: int) -> bool:
    architecture = ARCHITECTURES.get(raw.model_type)
    if architecture is None or not raw.sliding_window or raw.use_sliding_window is False:
        return False
    match architecture.windows:
        case WindowLayers.EVERY:
            return True
        case WindowLayers.PATTERN:
            return (number + 1) % (raw.sliding_window_pattern or 1) != 0
        case WindowLayers.LATER:
            return bool(raw.use_sliding_window) and number >= raw.max_window_layers
        case WindowLayers.ALTERNATE:
            return bool(raw.use_sliding_window) and number % 2 == 0 and number < raw.max_window_layers
        case WindowLayers.NONE:
            return False


def _layer(raw: HfConfig, number: int, layer_type: str, used: list[str]) -> LayerConfig:
    return LayerConfig(
        window=raw.sliding_window if layer_type == SLIDING else None,
        rope=used.index(layer_type) if _rotates(raw, number) else None,
        is_sparse=bool(raw.num_experts)
        and number not in (raw.mlp_only_layers or ())
        and (number + 1) % raw.decoder_sparse_step == 0,
    )


def _rotates(raw: HfConfig, number: int) -> bool:
    if raw.no_rope_layers is not None:
        return number >= len(raw.no_rope_layers) or bool(raw.no_rope_layers[number])
    return raw.no_rope_layer_interval is None or (number + 1) % raw.no_rope_layer_interval != 0


def _rope(raw: HfConfig, layer_type: str, head_dim: int) -> Rope:
    found = raw.rope(layer_type)
    is_plain = found["rope_type"] == "default"
    scaling = {"original_max_position_embeddings": raw.original_max_position_embeddings, **found}
    return Rope(
        float(found["rope_theta"]), int(head_dim * found["partial_rotary_factor"]), None if is_plain else scaling
    )


def _context(raw: HfConfig, rope: Rope) -> int:
    """Tokens that the model can attend to. Llama 3's files give the stretched length, others the length before.

    A RoPE with long and short factors has the short ones: KV that was computed with them cannot go on with the others.
    """
    if rope.scaling is None or rope.scaling["rope_type"] == "llama3":
        return raw.max_position_embeddings
    before = rope.scaling["original_max_position_embeddings"] or raw.max_position_embeddings
    if rope.scaling["rope_type"] == "longrope":
        return int(before)
    return max(raw.max_position_embeddings, int(before * rope.scaling.get("factor", 1.0)))


def _experts(raw: HfConfig) -> Experts | None:
    if not raw.num_experts:
        return None
    return Experts(
        raw.num_experts,
        raw.num_experts_per_tok,
        raw.moe_intermediate_size or raw.intermediate_size,
        raw.shared_expert_intermediate_size or 0,
        raw.norm_topk_prob,
    )


def _faults(raw: HfConfig) -> list[str]:
    """Why the torch engine does not run it."""
    if raw.model_type not in ARCHITECTURES:
        return [f'model_type {raw.model_type!r} is not one of backend "torch": {", ".join(ARCHITECTURES)}']
    faults = []
    for layer_type in (FULL, SLIDING):
        rope = raw.rope(layer_type)
        kind = rope["rope_type"]
        if kind not in ROPE_TYPES:
            faults.append(f"rope type {kind!r} is not supported; supported are {', '.join(ROPE_TYPES)}")
        elif kind not in ("default", "longrope") and "factor" not in rope:
            faults.append(f"rope type {kind!r} needs a factor")
    if raw.hidden_act not in ACTIVATIONS:
        faults.append(f"hidden_act {raw.hidden_act!r} is not supported; supported are {', '.join(ACTIVATIONS)}")
    if raw.use_bidirectional_attention:
        faults.append("attention that looks ahead is not supported; use_bidirectional_attention must be false")
    if raw.quantization_config is not None:
        method = raw.quantization_config.get("quant_method", "quantised")
        faults.append(
            f"{method} weights are not supported; take the float32, bfloat16 or float16 model, or a GGUF file"
        )
    return faults
