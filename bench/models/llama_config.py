"""The configuration of a Llama that is made here."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LlamaShape:
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocab: int = 32000


def write_config(
    folder: Path, shape: LlamaShape, max_context: int, *, tied: bool, bos: int, eos: int, dtype: str = "float32"
) -> None:
    """``tied``: the embeddings are the head, too."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.hidden // shape.heads,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": max_context,
        "tie_word_embeddings": tied,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "torch_dtype": dtype,
    }
    (folder / "config.json").write_text(json.dumps(config))
