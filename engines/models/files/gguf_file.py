"""GGUF files of the Llama family: their configuration and their tensors, under Hugging Face names."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from numpy.typing import NDArray

from engines.models.errors import ModelError
from engines.models.files.block_kinds import KINDS
from engines.models.files.llama3_rope import llama3_scaling

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_BLOCK_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"

Row = TypeVar("Row", np.float32, np.uint8)


class GgufModel:
    """Raises `ModelError` if the file is not GGUF, is damaged, or holds a model of another family."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise ModelError(f"{path}: not a readable GGUF file: {error}") from error
        self._architecture = str(self._field("general.architecture"))
        if self._architecture not in _ARCHITECTURES:
            supported = ", ".join(_ARCHITECTURES)
            raise ModelError(f"{path}: architecture {self._architecture!r} is not supported; supported are {supported}")
        self._tensors = {
            _name(tensor.name, path): tensor for tensor in self._reader.tensors if tensor.name != _ROPE_FACTORS
        }

    def config(self) -> dict[str, Any]:
        """The model's ``config.json``."""
        num_heads = self._parameter("attention.head_count")
        config = {
            "architectures": [_ARCHITECTURES[self._architecture]],
            "model_type": self._architecture,
            "vocab_size": self.shapes()["model.embed_tokens.weight"][0],
            "hidden_size": self._parameter("embedding_length"),
            "intermediate_size": self._parameter("feed_forward_length"),
            "num_hidden_layers": self._parameter("block_count"),
            "num_attention_heads": num_heads,
            "num_key_value_heads": self._parameter("attention.head_count_kv", num_heads),
            "head_dim": self._parameter("attention.key_length", self._parameter("embedding_length") // num_heads),
            "hidden_act": "silu",
            "max_position_embeddings": self._parameter("context_length"),
            "rms_norm_eps": self._parameter("attention.layer_norm_rms_epsilon", 1e-6),
            "rope_theta": self._parameter("rope.freq_base", 10000.0),
            "attention_bias": "model.layers.0.self_attn.q_proj.bias" in self._tensors,
            "mlp_bias": "model.layers.0.mlp.up_proj.bias" in self._tensors,
            "tie_word_embeddings": "lm_head.weight" not in self._tensors,
            "bos_token_id": self._field("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self._field("tokenizer.ggml.eos_token_id"),
            "pad_token_id": self._field("tokenizer.ggml.padding_token_id"),
            "torch_dtype": "float32",
        }
        return config | {"rope_scaling": self._rope_scaling(config)}

    def generation_config(self) -> dict[str, Any]:
        """The model's ``generation_config.json``: every token that ends an answer."""
        ids = [self._field(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
        return {"eos_token_id": list(dict.fromkeys(token for token in ids if token is not None)) or None}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(int(size) for size in reversed(tensor.shape)) for name, tensor in self._tensors.items()}

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """De-quantised, one at a time."""
        for name, tensor in self._tensors.items():
            yield name, self._in_order(name, self._dequantized(tensor))

    def block_kinds(self) -> dict[str, str]:
        """Return the kinds of blocks by name of a matrix, for matrices that engines read as they are (`KINDS`)."""
        kinds = {name: tensor.tensor_type.name for name, tensor in self._tensors.items() if len(tensor.shape) == 2}
        return {name: kind for name, kind in kinds.items() if kind in KINDS}

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """Rows and their bytes."""
        return {name: tuple(int(size) for size in self._tensors[name].data.shape) for name in self.block_kinds()}

    def blocks(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Matrices ``[out, bytes of a row]`` as the file has them, one at a time."""
        for name in self.block_kinds():
            yield name, self._in_order(name, self._tensors[name].data)

    def _in_order(self, name: str, rows: NDArray[Row]) -> NDArray[Row]:
        """Of queries and keys as Hugging Face has them."""
        if self._architecture != "llama":
            return rows
        heads = self._parameter("attention.head_count")
        by_part = {
            ".self_attn.q_proj.": heads,
            ".self_attn.k_proj.": self._parameter("attention.head_count_kv", heads),
        }
        permuted = next((count for part, count in by_part.items() if part in name), None)
        return _unpermuted(rows, permuted) if permuted else rows

    def _dequantized(self, tensor: ReaderTensor) -> NDArray[np.float32]:
        try:
            return dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        except NotImplementedError as error:
            kind = tensor.tensor_type.name
            raise ModelError(
                f"{self._path}: tensor {tensor.name} is quantised as {kind}, which cannot be read"
            ) from error

    def _rope_scaling(self, config: dict[str, Any]) -> dict[str, Any] | None:
        factors = next((tensor for tensor in self._reader.tensors if tensor.name == _ROPE_FACTORS), None)
        if factors is not None:
            return llama3_scaling(self._dequantized(factors), config["rope_theta"], config["head_dim"], self._path)
        kind = self._parameter("rope.scaling.type", "none")
        if kind == "none":
            return None
        scaling = {"rope_type": kind, "factor": self._parameter("rope.scaling.factor")}
        original = self._parameter("rope.scaling.original_context_length", 0)
        return scaling | ({"original_max_position_embeddings": original} if original else {})

    def _parameter(self, key: str, default: Any = None) -> Any:
        """A key of the architecture; required unless a default is given."""
        value = self._field(f"{self._architecture}.{key}")
        if value is None and default is None:
            raise ModelError(f"{self._path}: the key {self._architecture}.{key} is missing")
        return default if value is None else value

    def _field(self, key: str) -> Any:
        field = self._reader.get_field(key)
        return None if field is None else field.contents()


def _name(gguf_name: str, path: Path) -> str:
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", gguf_name)
    names = _BLOCK_TENSORS if match and match[1] else _TENSORS
    if match is None or match[2] not in names:
        raise ModelError(f"{path}: tensor {gguf_name} does not belong to a dense Llama-family model")
    prefix = f"model.layers.{match[1]}." if match[1] else ""
    return f"{prefix}{names[match[2]]}.{match[3]}"


def _unpermuted(rows: NDArray[Row], num_heads: int) -> NDArray[Row]:
    """Undo llama.cpp's order of the Q and K rows of Llama models: neighbours rotate together there, halves here."""
    pairs = rows.reshape(num_heads, rows.shape[0] // num_heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
