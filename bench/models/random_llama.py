"""A model folder of any size with random weights, for benches of speed: nobody reads what it says."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from bench.models.llama_config import LlamaShape, write_config
from engines.models.files.model_config import ModelConfig
from engines.torch_engine.parts import shape_of

PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
NORMS = ("input_layernorm", "post_attention_layernorm")


LLAMA2_7B = LlamaShape(layers=32, hidden=4096, inner=11008, heads=32, kv_heads=32)
SMALL = LlamaShape(layers=2, hidden=256, inner=512, heads=4, kv_heads=4, vocab=1000)
SHAPES: Mapping[str, LlamaShape] = {"llama-2-7b": LLAMA2_7B, "small": SMALL}


def add_random_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--random", choices=SHAPES, metavar="SHAPE", help=f"a model of random weights instead: {' or '.join(SHAPES)}"
    )


def random_model(options: argparse.Namespace, folder: Path) -> str:
    """Write the model that ``options.random`` asks for into ``folder``, drawn on ``options.device``. Return its path;
    empty: none is asked for.
    """
    if options.random is None:
        return ""
    (folder / "model").mkdir()
    return str(write_random_llama(folder / "model", SHAPES[options.random], "bfloat16", options.device))


def write_random_llama(folder: Path, shape: LlamaShape, dtype: str, device: str) -> Path:
    """A file a layer; ``device`` draws the weights. Each token is a text, and prompts are read byte by byte."""
    write_config(folder, shape, 4096, tied=False, bos=1, eos=2, dtype=dtype)
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
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*letters, *(f"w{number}" for number in range(len(letters), shape.vocab))]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
