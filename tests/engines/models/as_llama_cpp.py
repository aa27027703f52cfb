"""Writes a checkpoint as a GGUF file, as llama.cpp's converter does: names are those of the package `gguf`."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.engines.models.quantizing import quantized
from tests.engines.models.tiny import MERGES, SPECIAL, byte_level_vocabulary

ARCHITECTURES = {
    "llama": MODEL_ARCH.LLAMA,
    "mistral": MODEL_ARCH.LLAMA,
    "mixtral": MODEL_ARCH.LLAMA,
    "qwen2": MODEL_ARCH.QWEN2,
    "qwen3": MODEL_ARCH.QWEN3,
    "qwen2_moe": MODEL_ARCH.QWEN2MOE,
    "qwen3_moe": MODEL_ARCH.QWEN3MOE,
    "gemma": MODEL_ARCH.GEMMA,
    "gemma2": MODEL_ARCH.GEMMA2,
    "gemma3_text": MODEL_ARCH.GEMMA3,
    "phi": MODEL_ARCH.PHI2,
    "phi3": MODEL_ARCH.PHI3,
    "smollm3": MODEL_ARCH.SMOLLM3,
    "olmo2": MODEL_ARCH.OLMO2,
    "starcoder2": MODEL_ARCH.STARCODER2,
    "gpt_neox": MODEL_ARCH.GPTNEOX,
}
PERMUTED = ("llama", "mistral", "mixtral", "smollm3")


def write_as_llama_cpp(folder: Path, path: Path, kind: GGMLQuantizationType = GGMLQuantizationType.F32) -> None:
    """``kind``: of all matrices."""
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    names = get_tensor_name_map(architecture, config["num_hidden_layers"])
    writer = GGUFWriter(path, MODEL_ARCH_NAMES[architecture])
    _write_metadata(writer, config)
    for name, values in _tensors(load_file(folder / "model.safetensors"), config).items():
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, f"gguf has no name for {name}"
        of = kind if values.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(stored, _quantized(np.ascontiguousarray(values), of), raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _quantized(values: NDArray[np.float32], kind: GGMLQuantizationType) -> NDArray[Any]:
    if values.ndim < 3 or kind is GGMLQuantizationType.F32:
        return quantized(values, kind)
    return np.stack([quantized(part, kind) for part in values])


def _tensors(found: dict[str, NDArray[np.float32]], config: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    """What the converter makes of a checkpoint's tensors."""
    experts: dict[str, list[NDArray[np.float32]]] = {}
    tensors = {}
    for name in sorted(found, key=_by_numbers):
        values = found[name].astype(np.float32)
        match = re.fullmatch(r"(.*\.experts)\.\d+\.(.*)", name)
        if match:
            experts.setdefault(f"{match[1]}.{match[2]}", []).append(values)
        else:
            tensors[name] = _converted(name, values, config)
    return tensors | {name: np.stack(parts) for name, parts in experts.items()}


def _by_numbers(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def _converted(name: str, values: NDArray[np.float32], config: dict[str, Any]) -> NDArray[np.float32]:
    family, heads = config["model_type"], config["num_attention_heads"]
    if family.startswith("gemma") and name.endswith("norm.weight"):
        return values + np.float32(1)
    if name.endswith("shared_expert_gate.weight"):
        return values.squeeze()
    if ".query_key_value." in name:
        return values.reshape(heads, 3, -1, *values.shape[1:]).swapaxes(0, 1).reshape(values.shape)
    if family in PERMUTED and re.search(r"\.[qk]_proj\.", name):
        heads = heads if ".q_proj." in name else config["num_key_value_heads"]
        halves = values.reshape(heads, 2, -1, *values.shape[1:])
        return halves.swapaxes(1, 2).reshape(values.shape)
    return values


def _write_metadata(writer: GGUFWriter, config: dict[str, Any]) -> None:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim") or hidden // heads
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base(rope["rope_theta"])
    for key, add in {
        "rms_norm_eps": writer.add_layer_norm_rms_eps,
        "layer_norm_eps": writer.add_layer_norm_eps,
        "norm_epsilon": writer.add_layer_norm_eps,
        "use_parallel_residual": writer.add_parallel_residual,
        "sliding_window": writer.add_sliding_window,
        "attn_logit_softcapping": writer.add_attn_logit_softcapping,
        "final_logit_softcapping": writer.add_final_logit_softcapping,
        "num_experts": writer.add_expert_count,
        "num_local_experts": writer.add_expert_count,
        "num_experts_per_tok": writer.add_expert_used_count,
        "moe_intermediate_size": writer.add_expert_feed_forward_length,
        "shared_expert_intermediate_size": writer.add_expert_shared_feed_forward_length,
    }.items():
        if config.get(key):
            add(config[key])
    if rope["rope_type"] == "longrope":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))
    _write_tokenizer(writer, config["vocab_size"])


def _write_tokenizer(writer: GGUFWriter, vocab_size: int) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    vocabulary = byte_level_vocabulary()
    vocabulary += [f"<unused{number}>" for number in range(vocab_size - len(vocabulary))]
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
