"""GGUF files of decoders of the torch engine: their configuration and their tensors, as Hugging Face has them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from numpy.typing import NDArray

from engines.models.errors import ModelError
from engines.models.files.architectures import ARCHITECTURES, Architecture, NormKind
from engines.models.files.block_kinds import KINDS
from engines.models.files.gguf_config import gguf_architectures, long_factors, model_keys, model_type_of, stretched
from engines.models.files.gguf_names import (
    LONG_FACTORS,
    NOT_WEIGHTS,
    ROPE_FREQUENCIES,
    SHORT_FACTORS,
    checkpoint_name,
)
from engines.models.files.llama3_rope import llama3_scaling

Row = TypeVar("Row", np.float32, np.uint8)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of the checkpoint: one of the file, or an expert's part of it."""

    tensor: ReaderTensor
    expert: int | None = None

    @property
    def data(self) -> NDArray[Any]:
        data: NDArray[Any] = self.tensor.data
        return data if self.expert is None else data[self.expert]

    @property
    def shape(self) -> tuple[int, ...]:
        shape = tuple(int(size) for size in reversed(self.tensor.shape))
        return shape if self.expert is None else shape[1:]


class GgufModel:
    """Raises `ModelError` if the file is not GGUF, is damaged, or holds a model that the torch engine does not run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise ModelError(f"{path}: not a readable GGUF file: {error}") from error
        self._gguf = str(self._field("general.architecture"))
        model_type = model_type_of(self._gguf, bool(self._field(f"{self._gguf}.expert_count")))
        if model_type is None:
            supported = ", ".join(gguf_architectures())
            raise ModelError(f"{path}: architecture {self._gguf!r} is not supported; supported are {supported}")
        self._model_type = model_type
        self._entries = self._named()

    @property
    def attention_bias(self) -> bool:
        architecture = self._architecture
        return f"{architecture.modules.layers}.0.{architecture.modules.qkv[0]}.bias" in self._entries

    @property
    def mlp_bias(self) -> bool:
        architecture = self._architecture
        return f"{architecture.modules.layers}.0.{architecture.modules.up[-1]}.bias" in self._entries

    @property
    def head(self) -> bool:
        return f"{self._architecture.modules.head}.weight" in self._entries

    def config(self) -> dict[str, Any]:
        """The model's ``config.json``."""
        vocab_size = self._entries[f"{self._architecture.modules.embeddings}.weight"].shape[0]
        config = model_keys(self._model_type, self, vocab_size, self) | {
            "bos_token_id": self._field("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self._field("tokenizer.ggml.eos_token_id"),
            "pad_token_id": self._field("tokenizer.ggml.padding_token_id"),
        }
        scaling = self._rope_scaling(config)
        before = {} if scaling is None or scaling["rope_type"] != "longrope" else scaling
        return (
            config
            | {"rope_scaling": scaling}
            | {key: value for key, value in before.items() if key == "original_max_position_embeddings"}
        )

    def generation_config(self) -> dict[str, Any]:
        """The model's ``generation_config.json``: every token that ends an answer."""
        ids = [self._field(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
        return {"eos_token_id": list(dict.fromkeys(token for token in ids if token is not None)) or None}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: self._shape(name, entry) for name, entry in self._entries.items()}

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """De-quantised, one at a time."""
        for name, entry in self._entries.items():
            values = self._in_order(name, self._dequantized(entry)).reshape(self._shape(name, entry))
            is_shifted = self._architecture.norm is NormKind.RMS_PLUS_ONE and name.endswith("norm.weight")
            yield name, values - np.float32(1) if is_shifted else values

    def block_kinds(self) -> dict[str, str]:
        """Return the kinds of blocks by name of a matrix, for matrices that engines read as they are (`KINDS`)."""
        kinds = {name: entry.tensor.tensor_type.name for name, entry in self._entries.items() if len(entry.shape) == 2}
        return {name: kind for name, kind in kinds.items() if kind in KINDS}

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """Rows and their bytes."""
        return {name: tuple(int(size) for size in self._entries[name].data.shape) for name in self.block_kinds()}

    def blocks(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Matrices ``[out, bytes of a row]`` as the file has them, one at a time."""
        for name in self.block_kinds():
            yield name, self._in_order(name, self._entries[name].data)

    def parameter(self, key: str, default: Any = None) -> Any:
        """Return a key of the architecture. Raise `ModelError` if it is missing and there is no default."""
        value = self._field(f"{self._gguf}.{key}")
        if value is None and default is None:
            raise ModelError(f"{self._path}: the key {self._gguf}.{key} is missing")
        return default if value is None else value

    @property
    def _architecture(self) -> Architecture:
        return ARCHITECTURES[self._model_type]

    def _named(self) -> dict[str, StoredTensor]:
        entries: dict[str, StoredTensor] = {}
        for tensor in self._reader.tensors:
            if tensor.name.removesuffix(".weight") in NOT_WEIGHTS:
                continue
            found = checkpoint_name(tensor.name, self._architecture)
            if found is None:
                kind = self._architecture.name
                raise ModelError(f"{self._path}: tensor {tensor.name} does not belong to a model of {kind}")
            if found.is_of_experts:
                experts = range(int(tensor.shape[-1]))
                entries |= {found.name.format(expert): StoredTensor(tensor, expert) for expert in experts}
            else:
                entries[found.name] = StoredTensor(tensor)
        return entries

    def _shape(self, name: str, entry: StoredTensor) -> tuple[int, ...]:
        """Of one output, llama.cpp keeps a vector."""
        is_vector = name.endswith(f"{self._architecture.modules.shared_gate}.weight") and len(entry.shape) == 1
        return (1, *entry.shape) if is_vector else entry.shape

    def _in_order(self, name: str, rows: NDArray[Row]) -> NDArray[Row]:
        """Rows of queries and keys as Hugging Face has them."""
        heads = self.parameter("attention.head_count")
        *_, module, _ = name.split(".")
        if self._architecture.interleaved_qkv and name.rpartition(".")[0].endswith(self._architecture.modules.qkv[0]):
            return _by_head(rows, heads)
        if not self._architecture.gguf_permuted or module not in ("q_proj", "k_proj"):
            return rows
        return _unpermuted(rows, heads if module == "q_proj" else self.parameter("attention.head_count_kv", heads))

    def _dequantized(self, entry: StoredTensor) -> NDArray[np.float32]:
        try:
            return dequantize(entry.data, entry.tensor.tensor_type).astype(np.float32, copy=False)
        except NotImplementedError as error:
            kind = entry.tensor.tensor_type.name
            raise ModelError(
                f"{self._path}: tensor {entry.tensor.name} is quantised as {kind}, which cannot be read"
            ) from error

    def _rope_scaling(self, config: dict[str, Any]) -> dict[str, Any] | None:
        factors = self._factors(ROPE_FREQUENCIES)
        if factors is not None:
            return llama3_scaling(factors, config["rope_theta"], config["head_dim"], self._path)
        long, short = self._factors(LONG_FACTORS), self._factors(SHORT_FACTORS)
        if long is not None and short is not None:
            return long_factors(self, long.tolist(), short.tolist())
        scaling = stretched(self)
        return None if scaling is None else dict(scaling)

    def _factors(self, name: str) -> NDArray[np.float32] | None:
        found = next((tensor for tensor in self._reader.tensors if tensor.name == f"{name}.weight"), None)
        return None if found is None else self._dequantized(StoredTensor(found))

    def _field(self, key: str) -> Any:
        field = self._reader.get_field(key)
        return None if field is None else field.contents()


def _unpermuted(rows: NDArray[Row], num_heads: int) -> NDArray[Row]:
    """Undo llama.cpp's order of the Q and K rows of Llama models: neighbours rotate together there, halves here."""
    pairs = rows.reshape(num_heads, rows.shape[0] // num_heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _by_head(rows: NDArray[Row], num_heads: int) -> NDArray[Row]:
    """Undo llama.cpp's order of GPT-NeoX's one projection: queries, keys, values there, head by head here."""
    parts = rows.reshape(3, num_heads, rows.shape[0] // num_heads // 3, *rows.shape[1:])
    return parts.swapaxes(0, 1).reshape(rows.shape)
