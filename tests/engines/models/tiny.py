"""Models small enough to be made for a test."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 96, 2, 4, 2, 128
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("o", "r"), ("Ġw", "or"))
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

Weights = dict[str, NDArray[np.float32]]


def ignore(step: str, done: float | None = None) -> None:
    """Progress that nobody looks at."""


def byte_level_vocabulary() -> list[str]:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*SPECIAL, *alphabet, *("".join(merge) for merge in MERGES)]


def write_gguf(
    path: Path,
    architecture: str = "llama",
    quantization: GGMLQuantizationType = GGMLQuantizationType.F32,
    more: Iterable[str] = (),
    factors: NDArray[np.float32] | None = None,
    tied: bool = True,
    skip: str | None = None,
) -> Weights:
    """Write a random model; answer its tensors under GGUF names, rows in the order of Hugging Face."""
    weights = _random_weights(more, tied)
    writer = GGUFWriter(path, architecture)
    _write_metadata(writer, skip)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    for name, values in weights.items():
        stored = _permuted(name, values) if architecture == "llama" else values
        kind = quantization if values.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(name, quantize(stored, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def _random_weights(more: Iterable[str], tied: bool) -> Weights:
    generator = np.random.default_rng(7)
    kv = HIDDEN // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(byte_level_vocabulary()), HIDDEN)}
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        shapes |= {f"{block}.attn_norm.weight": (HIDDEN,), f"{block}.ffn_norm.weight": (HIDDEN,)}
        shapes |= {f"{block}.attn_q.weight": (HIDDEN, HIDDEN), f"{block}.attn_output.weight": (HIDDEN, HIDDEN)}
        shapes |= {f"{block}.attn_k.weight": (kv, HIDDEN), f"{block}.attn_v.weight": (kv, HIDDEN)}
        shapes |= {f"{block}.{name}.weight": (FEED_FORWARD, HIDDEN) for name in ("ffn_gate", "ffn_up")}
        shapes |= {f"{block}.ffn_down.weight": (HIDDEN, FEED_FORWARD)}
    shapes |= {"output_norm.weight": (HIDDEN,)} | dict.fromkeys(more, (HIDDEN // HEADS,))
    if not tied:
        shapes["output.weight"] = shapes["token_embd.weight"]
    return {name: generator.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def _write_metadata(writer: GGUFWriter, skip: str | None) -> None:
    writer.add_context_length(CONTEXT)
    writer.add_block_count(LAYERS)
    if skip != "embedding_length":
        writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    vocabulary = byte_level_vocabulary()
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(0)
    writer.add_chat_template(TEMPLATE)


def _permuted(name: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The order that llama.cpp's converter gives the rows of Q and K."""
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-2])
    if heads is None:
        return rows
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))
