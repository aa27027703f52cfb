"""The page of models and the backends that run them, made from the table of architectures."""

from collections.abc import Iterator

from docs.tools.tables import table
from engines.models.files.architectures import ARCHITECTURES, Architecture, HeadNormKind, WindowLayers
from engines.models.files.vllm_architectures import VLLM_ARCHITECTURES

_INTRODUCTION = """# Models

This page is made from `engines/models/files/architectures.py`, where each kind of decoder that `backend = "torch"` runs
is a row, and from the list of vLLM's. `model_type` is what a model's `config.json` says.
"""
_NOTES = """
- Tests compare each row with transformers, on tiny random weights in float32: prompts whole and in chunks, and decodes
  out of paged KV. Those with a name in GGUF are compared out of such files, too.
- Weights may be float32, bfloat16 or float16, or a GGUF file's. On processors the kernels of the torch engine compute
  windows, soft caps and weights in codes, and all rows may be `int8`. Routers of experts stay in floats. Where a kernel
  does not take a model's sizes, torch computes the same.
- On GPUs, models of experts decode without CUDA graphs, and models with a soft cap on attention without
  FlashAttention 3.
- Layers with a window keep KV of all tokens, as the others do.
- A RoPE with long and short factors (Phi-3 of 128k, Phi-4-mini) has the short ones, and contexts end where the model
  says that these do (`original_max_position_embeddings`). KV that was computed with one set is wrong with the other.
- Of Gemma 3 models that read images, the text part runs.

## Other models

`backend = "vllm"` runs what vLLM's registry of models for text has and what keeps K and V of each layer alike, with
weights in FP8, AWQ or GPTQ as vLLM has them. It refuses at its start what keeps several kinds of KV, such as latent
attention and state spaces. `backend = "transformers"` runs whatever its `generate` does.

A model that is not for the torch engine is refused by it in one line that names the backends that would run it. For
encoders, see [how to embed texts](../guides/embed-texts.md).

vLLM runs these classes (`architectures` in `config.json`):
"""
_WINDOWS = {
    WindowLayers.EVERY: "window in every layer, if set",
    WindowLayers.PATTERN: "window in all but each n-th layer",
    WindowLayers.LATER: "window in later layers, if switched on",
    WindowLayers.ALTERNATE: "window in every other layer, if switched on",
}
_HEADS = ("`model_type`", "models", "norms", "attention", "MLP", "GGUF", "torch", "transformers", "vLLM")


def page() -> str:
    rows = [_row(model_type, row) for model_type, row in ARCHITECTURES.items()]
    others = ", ".join(f"`{name}`" for name in sorted(VLLM_ARCHITECTURES))
    return f"{_INTRODUCTION}\n{table(_HEADS, rows)}{_NOTES}\n{others}.\n"


def _row(model_type: str, row: Architecture) -> tuple[str, ...]:
    gguf = f"`{row.gguf}`" if row.gguf else "no"
    vllm = "yes" if row.transformers in VLLM_ARCHITECTURES else "no"
    kinds = (_norms(row), ", ".join(_attention(row)) or "full", ", ".join(_mlp(row)))
    return (f"`{model_type}`", row.name, *kinds, gguf, "yes", "yes", vllm)


def _norms(row: Architecture) -> str:
    places = {"before": row.modules.attention_norm, "after": row.modules.post_attention_norm}
    return f"{row.norm}, {' and '.join(place for place, name in places.items() if name)} blocks"


def _attention(row: Architecture) -> Iterator[str]:
    if row.windows in _WINDOWS:
        yield _WINDOWS[row.windows]
    if row.head_norm is not HeadNormKind.NONE:
        yield f"queries and keys normalised, {row.head_norm}"
    if row.defaults.get("attn_logit_softcapping"):
        yield "soft caps"
    if "no_rope_layer_interval" in row.defaults:
        yield "some layers without rotation"
    if "partial_rotary_factor" in row.defaults:
        yield "a part of each head rotated"
    if len(row.modules.qkv) == 1:
        yield "one matrix of queries, keys and values"


def _mlp(row: Architecture) -> Iterator[str]:
    yield "gated" if row.gated else "plain"
    if "num_experts_per_tok" in row.defaults:
        yield "experts"
    if row.defaults.get("use_parallel_residual"):
        yield "beside attention"
