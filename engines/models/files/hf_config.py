"""``config.json`` as Hugging Face writes it: the keys that matter here, and what of them is supported."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from engines.models.errors import ModelError

SUPPORTED_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3", "yarn")

T = TypeVar("T")


class HfGeneration(msgspec.Struct, frozen=True):
    eos_token_id: int | list[int] | None = None


class HfConfig(msgspec.Struct, frozen=True):
    """Absent keys take the defaults of transformers."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None  # since transformers 5: rope_theta and rope_scaling in one
    partial_rotary_factor: float = 1.0
    sliding_window: int | None = None
    use_sliding_window: bool | None = None
    layer_types: list[str] | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    dtype: str | None = None
    torch_dtype: str | None = None  # the older name of dtype
    quantization_config: dict[str, Any] | None = None

    @property
    def theta(self) -> float:
        return float((self.rope_parameters or {}).get("rope_theta", self.rope_theta))

    @property
    def rope_type(self) -> str:
        rope = self.rope_parameters or self.rope_scaling or {}
        return str(rope.get("rope_type", rope.get("type", "default")))

    @property
    def scaling(self) -> Mapping[str, Any] | None:
        """The parameters of a stretched RoPE, ``rope_type`` among them; None for a plain one."""
        rope = self.rope_parameters or self.rope_scaling
        return None if rope is None or self.rope_type == "default" else rope | {"rope_type": self.rope_type}

    @property
    def window(self) -> int | None:
        """Mistral's window is on where it is set; Qwen's has a switch; newer files list the layers that have one."""
        switched_on = self.model_type == "mistral" or bool(self.use_sliding_window)
        used = self.layer_types is None or "sliding_attention" in self.layer_types
        return self.sliding_window if switched_on and used else None


def read_config(path: Path) -> HfConfig:
    """Raise `ModelError` on anything but a Llama-family model that is not quantised."""
    data = _bytes(path)
    family = _decode(data, dict[str, Any], path).get("model_type")
    if family not in SUPPORTED_MODEL_TYPES:
        supported = ", ".join(SUPPORTED_MODEL_TYPES)
        raise ModelError(f"{path}: model_type {family!r} is not supported; supported are {supported}")
    config = _decode(data, HfConfig, path)
    for fault in _faults(config):
        raise ModelError(f"{path}: {fault}")
    return config


def read_generation(path: Path) -> HfGeneration:
    """An absent file says nothing."""
    return _decode(_bytes(path), HfGeneration, path) if path.exists() else HfGeneration()


def token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    """One id, several or none, as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def _faults(config: HfConfig) -> list[str]:
    faults = []
    if config.rope_type not in SUPPORTED_ROPE_TYPES:
        supported = ", ".join(SUPPORTED_ROPE_TYPES)
        faults.append(f"rope type {config.rope_type!r} is not supported; supported are {supported}")
    if config.scaling is not None and "factor" not in config.scaling:
        faults.append(f"rope type {config.rope_type!r} needs a factor")
    if config.partial_rotary_factor != 1.0:
        faults.append(f"partial_rotary_factor {config.partial_rotary_factor} is not supported; it must be 1")
    if config.hidden_act != "silu":
        faults.append(f"hidden_act {config.hidden_act!r} is not supported; it must be 'silu'")
    if config.quantization_config is not None:
        method = config.quantization_config.get("quant_method", "quantised")
        faults.append(
            f"{method} weights are not supported; take the float32, bfloat16 or float16 model, or a GGUF file"
        )
    if config.num_attention_heads % (config.num_key_value_heads or config.num_attention_heads):
        faults.append("num_attention_heads must be a multiple of num_key_value_heads")
    return faults


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error


def _decode(data: bytes, kind: type[T], path: Path) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise ModelError(f"{path}: {error}") from error
    except msgspec.DecodeError as error:
        raise ModelError(f"{path}: no JSON, or cut short: {error}") from error
