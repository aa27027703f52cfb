"""Names that llama.cpp's converter gives the tensors of a checkpoint, and back."""

import re
from typing import NamedTuple

from engines.models.files.architectures import Architecture, Modules

# Of the file, not of the model: frequencies that the configuration says in other words.
ROPE_FREQUENCIES, LONG_FACTORS, SHORT_FACTORS = "rope_freqs", "rope_factors_long", "rope_factors_short"
NOT_WEIGHTS = (ROPE_FREQUENCIES, LONG_FACTORS, SHORT_FACTORS)


class GgufName(NamedTuple):
    """A tensor's name in the checkpoint. ``{}`` stands for the number of an expert, whose tensors are one in GGUF."""

    name: str
    is_of_experts: bool = False


def checkpoint_name(gguf_name: str, architecture: Architecture) -> GgufName | None:
    """Return what a tensor of a GGUF file is called in the checkpoint; None: such a model has no such tensor."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", gguf_name)
    if match is None:
        return None
    modules = architecture.modules
    number, role, kind = match.groups()
    name = (_model_names(modules) if number is None else _layer_names(modules)).get(role)
    if name is None:
        return None
    prefix = "" if number is None else f"{modules.layers}.{number}."
    return GgufName(f"{prefix}{name}.{kind}", role.endswith("_exps"))


def _model_names(modules: Modules) -> dict[str, str]:
    return {"token_embd": modules.embeddings, "output_norm": modules.norm, "output": modules.head}


def _layer_names(modules: Modules) -> dict[str, str]:
    names: dict[str, str | None] = {
        "attn_norm": modules.attention_norm,
        "attn_output": modules.out,
        "attn_q_norm": modules.query_norm,
        "attn_k_norm": modules.key_norm,
        "post_attention_norm": modules.post_attention_norm,
        "ffn_norm": modules.mlp_norm,
        "ffn_up": modules.up[-1],
        "ffn_down": modules.down,
        "post_ffw_norm": modules.post_mlp_norm,
        "ffn_gate_inp": modules.router,
        "ffn_gate_inp_shexp": modules.shared_gate,
        "ffn_gate_exps": f"{modules.experts}.{{}}.{modules.expert_up[0]}",
        "ffn_up_exps": f"{modules.experts}.{{}}.{modules.expert_up[1]}",
        "ffn_down_exps": f"{modules.experts}.{{}}.{modules.expert_down}",
        "ffn_gate_shexp": f"{modules.shared_expert}.{modules.expert_up[0]}",
        "ffn_up_shexp": f"{modules.shared_expert}.{modules.expert_up[1]}",
        "ffn_down_shexp": f"{modules.shared_expert}.{modules.expert_down}",
    }
    roles = ("attn_q", "attn_k", "attn_v") if len(modules.qkv) > 1 else ("attn_qkv",)
    names |= dict(zip(roles, modules.qkv, strict=True))
    if len(modules.up) > 1:
        names["ffn_gate"] = modules.up[0]
    return {role: name for role, name in names.items() if name is not None}
