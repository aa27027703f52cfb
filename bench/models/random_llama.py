"""A model folder of any size with random weights, for benches of speed: nobody reads what it says."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from engines.models.files.model_config import ModelConfig
from engines.torch_engine.weights import shape_of

PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
NORMS = ("input_layernorm", "post_attention_layernorm")


@dataclass(frozen=True, slots=True)
class LlamaShape:
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocab: int = 32000


LLAMA2_7B = LlamaShape(layers=32, hidden=4096, inner=11008, heads=32, kv_heads=32)
SMALL = LlamaShape(layers=2, hidden=256, inner=512, heads=4, kv_heads=4, vocab=1000)


def write_random_llama(folder: Path, shape: LlamaShape, dtype: str, device: str) -> Path:
    """A file a layer; ``device`` draws the weights. Its tokenizer knows no word."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": dtype,
    }
    (folder / "config.json").write_text(json.dumps(config))
    loaded = ModelConfig.load(folder)
    layers = [[f"model.layers.{n}.{name}.weight" for name in (*PROJECTIONS, *MLP, *NORMS)] for n in range(shape.layers)]
    weight_map: dict[str, str] = {}
    for number, names in enumerate([*layers, ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]]):
        file = f"model-{number}.safetensors"
        weights = {
            name: torch.empty(shape_of(name, loaded), dtype=getattr(torch, dtype), device=device).normal_(0, 0.02).cpu()
            for name in names
        }
        save_file(weights, folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    Tokenizer(models.BPE()).save(str(folder / "tokenizer.json"))
    return folder
