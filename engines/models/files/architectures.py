"""The parts that decoders of the torch engine are made of: a row for each ``model_type`` of Hugging Face.

A row says where a decoder differs from Llama's: its norms, its attention, its MLP, and how the checkpoint names them.
Sizes and the layers that differ from each other are of one model, and `engines.models.files.model_config` reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class NormKind(StrEnum):
    """How hidden states are normalised."""

    RMS = "RMS"
    RMS_PLUS_ONE = "RMS, weights plus 1"  # Gemma's
    LAYER = "layer norm"


class HeadNormKind(StrEnum):
    """What of queries and keys is normalised, before they are rotated."""

    NONE = "none"
    EACH = "each head"
    ALL = "all heads as one"


class WindowLayers(StrEnum):
    """Which layers have a sliding window, where the configuration does not list them."""

    NONE = "none"
    EVERY = "every layer"
    PATTERN = "all but each n-th layer"
    LATER = "layers from max_window_layers on, if use_sliding_window"
    ALTERNATE = "every other layer before max_window_layers, if use_sliding_window"


@dataclass(frozen=True, slots=True)
class Modules:
    """Names in the checkpoint: of the model's own modules, and of a layer's after ``layers`` and its number.

    A norm that the decoder does not have is None. ``qkv`` and ``up`` are one name where the file has one matrix.
    """

    embeddings: str = "model.embed_tokens"
    layers: str = "model.layers"
    norm: str = "model.norm"
    head: str = "lm_head"
    attention_norm: str | None = "input_layernorm"
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    query_norm: str = "self_attn.q_norm"
    key_norm: str = "self_attn.k_norm"
    out: str = "self_attn.o_proj"
    post_attention_norm: str | None = None
    mlp_norm: str | None = "post_attention_layernorm"
    up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")  # a gated MLP: the gate comes first
    down: str = "mlp.down_proj"
    post_mlp_norm: str | None = None
    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    expert_up: tuple[str, ...] = ("gate_proj", "up_proj")
    expert_down: str = "down_proj"
    shared_expert: str = "mlp.shared_expert"
    shared_gate: str = "mlp.shared_expert_gate"


@dataclass(frozen=True, slots=True)
class Architecture:
    """A kind of decoder. ``defaults``: of keys that ``config.json`` may leave out, where they are not Llama's.

    ``gguf`` is its name in GGUF files, if llama.cpp has it; ``gguf_permuted``: these have query and key rows in an
    order of llama.cpp's own.
    """

    name: str
    transformers: str  # the class
    modules: Modules = field(default_factory=Modules)
    norm: NormKind = NormKind.RMS
    head_norm: HeadNormKind = HeadNormKind.NONE
    gated: bool = True
    windows: WindowLayers = WindowLayers.NONE
    scales_embeddings: bool = False  # by the root of the hidden size
    interleaved_qkv: bool = False  # the one matrix has query, key and value of a head, then those of the next
    defaults: Mapping[str, Any] = field(default_factory=dict)
    gguf: str | None = None
    gguf_permuted: bool = False


_LLAMA = Architecture("Llama 2 and 3, SmolLM2", "LlamaForCausalLM", gguf="llama", gguf_permuted=True)
_QWEN = {"max_window_layers": 28, "sliding_window": 4096}
_GEMMA_NORMS = Modules(
    post_attention_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    post_mlp_norm="post_feedforward_layernorm",
)
_GEMMA_DEFAULTS: dict[str, Any] = {
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_GEMMA2 = Architecture(
    "Gemma 2",
    "Gemma2ForCausalLM",
    modules=_GEMMA_NORMS,
    norm=NormKind.RMS_PLUS_ONE,
    windows=WindowLayers.PATTERN,
    scales_embeddings=True,
    defaults=_GEMMA_DEFAULTS
    | {
        "sliding_window_pattern": 2,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "max_position_embeddings": 8192,
        "num_key_value_heads": 4,
        "num_attention_heads": 8,
    },
    gguf="gemma2",
)
_GEMMA3 = replace(
    _GEMMA2,
    name="Gemma 3 (text)",
    transformers="Gemma3ForCausalLM",
    head_norm=HeadNormKind.EACH,
    defaults=_GEMMA_DEFAULTS
    | {
        "sliding_window_pattern": 6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "max_position_embeddings": 131072,
        "vocab_size": 262208,
        "num_key_value_heads": 4,
        "num_attention_heads": 8,
    },
    gguf="gemma3",
)
_OLMO2 = Architecture(
    "OLMo 2",
    "Olmo2ForCausalLM",
    modules=Modules(
        attention_norm=None,
        post_attention_norm="post_attention_layernorm",
        mlp_norm=None,
        post_mlp_norm="post_feedforward_layernorm",
    ),
    head_norm=HeadNormKind.ALL,
    defaults={"rms_norm_eps": 1e-5},
    gguf="olmo2",
)
_QWEN2 = Architecture("Qwen2, Qwen2.5", "Qwen2ForCausalLM", windows=WindowLayers.LATER, defaults=_QWEN, gguf="qwen2")
_QWEN3 = replace(
    _QWEN2,
    name="Qwen3",
    transformers="Qwen3ForCausalLM",
    head_norm=HeadNormKind.EACH,
    defaults=_QWEN | {"head_dim": 128},
    gguf="qwen3",
)
_MOE = {"num_experts_per_tok": 2, "decoder_sparse_step": 1, "norm_topk_prob": False}

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": _LLAMA,
    "mistral": Architecture(
        "Mistral",
        "MistralForCausalLM",
        windows=WindowLayers.EVERY,
        defaults={"sliding_window": 4096, "num_key_value_heads": 8},
        gguf="llama",
        gguf_permuted=True,
    ),
    "qwen2": _QWEN2,
    "qwen3": _QWEN3,
    "qwen2_moe": replace(
        _QWEN2,
        name="Qwen1.5-MoE, Qwen2-MoE",
        transformers="Qwen2MoeForCausalLM",
        windows=WindowLayers.ALTERNATE,
        defaults=_QWEN | _MOE | {"num_experts_per_tok": 4},
        gguf="qwen2moe",
    ),
    "qwen3_moe": replace(
        _QWEN3,
        name="Qwen3-MoE",
        transformers="Qwen3MoeForCausalLM",
        defaults=_QWEN | _MOE | {"num_experts_per_tok": 8, "max_window_layers": 0},
        gguf="qwen3moe",
    ),
    "mixtral": Architecture(
        "Mixtral",
        "MixtralForCausalLM",
        modules=Modules(
            router="block_sparse_moe.gate",
            experts="block_sparse_moe.experts",
            expert_up=("w1", "w3"),
            expert_down="w2",
        ),
        windows=WindowLayers.EVERY,
        defaults=_MOE
        | {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_experts": 8, "norm_topk_prob": True, "num_key_value_heads": 8},
        gguf="llama",
        gguf_permuted=True,
    ),
    "gemma": replace(
        _GEMMA2,
        name="Gemma",
        transformers="GemmaForCausalLM",
        modules=Modules(),
        windows=WindowLayers.NONE,
        defaults={"head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
        gguf="gemma",
    ),
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "gemma3": replace(_GEMMA3, name="Gemma 3 (its text part)"),
    "phi": Architecture(
        "Phi-1, Phi-2",
        "PhiForCausalLM",
        modules=Modules(
            norm="model.final_layernorm",
            out="self_attn.dense",
            mlp_norm="input_layernorm",
            up=("mlp.fc1",),
            down="mlp.fc2",
        ),
        norm=NormKind.LAYER,
        gated=False,
        defaults={
            "rms_norm_eps": 1e-5,
            "hidden_act": "gelu_new",
            "partial_rotary_factor": 0.5,
            "use_parallel_residual": True,
        },
        gguf="phi2",
    ),
    "phi3": Architecture(
        "Phi-3, Phi-4",
        "Phi3ForCausalLM",
        modules=Modules(qkv=("self_attn.qkv_proj",), up=("mlp.gate_up_proj",)),
        windows=WindowLayers.EVERY,
        defaults={"rms_norm_eps": 1e-5},
        gguf="phi3",
    ),
    "smollm3": replace(
        _LLAMA,
        name="SmolLM3",
        transformers="SmolLM3ForCausalLM",
        defaults={
            "no_rope_layer_interval": 4,
            "num_key_value_heads": 4,
            "rope_theta": 2e6,
            "tie_word_embeddings": True,
        },
        gguf="smollm3",
    ),
    "olmo2": _OLMO2,
    "olmo3": replace(
        _OLMO2,
        name="OLMo 3",
        transformers="Olmo3ForCausalLM",
        windows=WindowLayers.PATTERN,
        defaults={"rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4},
        gguf=None,
    ),
    "starcoder2": Architecture(
        "StarCoder2",
        "Starcoder2ForCausalLM",
        modules=Modules(up=("mlp.c_fc",), down="mlp.c_proj"),
        norm=NormKind.LAYER,
        gated=False,
        windows=WindowLayers.EVERY,
        defaults={
            "rms_norm_eps": 1e-5,
            "hidden_act": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
            "num_key_value_heads": 2,
        },
        gguf="starcoder2",
    ),
    "gpt_neox": Architecture(
        "GPT-NeoX, Pythia",
        "GPTNeoXForCausalLM",
        modules=Modules(
            embeddings="gpt_neox.embed_in",
            layers="gpt_neox.layers",
            norm="gpt_neox.final_layer_norm",
            head="embed_out",
            qkv=("attention.query_key_value",),
            out="attention.dense",
            up=("mlp.dense_h_to_4h",),
            down="mlp.dense_4h_to_h",
        ),
        norm=NormKind.LAYER,
        gated=False,
        interleaved_qkv=True,
        defaults={
            "rms_norm_eps": 1e-5,
            "hidden_act": "gelu",
            "partial_rotary_factor": 0.25,
            "use_parallel_residual": True,
        },
        gguf="gptneox",
    ),
}
