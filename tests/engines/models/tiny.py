"""Models small enough to be made for a test."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

from tests.engines.models.quantizing import quantized

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
    quantization: GGMLQuantizationType | Mapping[str, GGMLQuantizationType] = GGMLQuantizationType.F32,
    more: Iterable[str] = (),
    factors: NDArray[np.float32] | None = None,
    tied: bool = True,
    skip: str | None = None,
    hidden: int = HIDDEN,
    feed_forward: int = FEED_FORWARD,
) -> Weights:
    """Write a random model; answer its tensors under GGUF names, rows in the order of Hugging Face.

    ``quantization``: of all matrices, or by what they are called (``attn_q``).
    """
    weights = _random_weights(more, tied, hidden, feed_forward)
    writer = GGUFWriter(path, architecture)
    _write_metadata(writer, skip, hidden, feed_forward)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    for name, values in weights.items():
        stored = _permuted(name, values) if architecture == "llama" else values
        kind = GGMLQuantizationType.F32
        if values.ndim == 2:
            is_one = isinstance(quantization, GGMLQuantizationType)
            kind = quantization if is_one else quantization[name.split(".")[-2]]
        writer.add_tensor(name, quantized(stored, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def _random_weights(more: Iterable[str], tied: bool, hidden: int, feed_forward: int) -> Weights:
    generator = np.random.default_rng(7)
    kv = hidden // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(byte_level_vocabulary()), hidden)}
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        shapes |= {f"{block}.attn_norm.weight": (hidden,), f"{block}.ffn_norm.weight": (hidden,)}
        shapes |= {f"{block}.attn_q.weight": (hidden, hidden), f"{block}.attn_output.weight": (hidden, hidden)}
        shapes |= {f"{block}.attn_k.weight": (kv, hidden), f"{block}.attn_v.weight": (kv, hidden)}
        shapes |= {f"{block}.{name}.weight": (feed_forward, hidden) for name in ("ffn_gate", "ffn_up")}
        shapes |= {f"{block}.ffn_down.weight": (hidden, feed_forward)}
    shapes |= {"output_norm.weight": (hidden,)} | dict.fromkeys(more, (hidden // HEADS,))
    if not tied:
        shapes["output.weight"] = shapes["token_embd.weight"]
    return {name: generator.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def _write_metadata(writer: GGUFWriter, skip: str | None, hidden: int, feed_forward: int) -> None:
    writer.add_context_length(CONTEXT)
    writer.add_block_count(LAYERS)
    if skip != "embedding_length":
        writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(feed_forward)
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
