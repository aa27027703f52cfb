"""The model as a folder in the layout of Hugging Face's Llama."""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from bench.models.byte_llama.network import BEGIN, END, VOCABULARY, ByteLlama, Shape
from engines.models.text.pieces import byte_alphabet

SPECIAL = {BEGIN: "<|begin|>", END: "<|end|>"}


def write_folder(folder: Path, network: ByteLlama, shape: Shape, dtype: torch.dtype) -> None:
    """Everything that serving needs, weights in ``dtype``."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.to(dtype).contiguous() for name, weight in network.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    _tokenizer().save(str(folder / "tokenizer.json"))
    _write(folder / "config.json", _config(shape, dtype))
    _write(folder / "generation_config.json", {"bos_token_id": BEGIN, "eos_token_id": END})
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[BEGIN],
            "eos_token": SPECIAL[END],
            "clean_up_tokenization_spaces": False,
            "model_max_length": shape.context,
        },
    )


def _config(shape: Shape, dtype: torch.dtype) -> dict[str, object]:
    fields = asdict(shape)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": fields["hidden_size"],
        "intermediate_size": fields["intermediate_size"],
        "num_hidden_layers": fields["num_layers"],
        "num_attention_heads": fields["num_heads"],
        "num_key_value_heads": fields["num_kv_heads"],
        "head_dim": fields["head_dim"],
        "max_position_embeddings": fields["context"],
        "rope_theta": fields["rope_theta"],
        "rms_norm_eps": fields["epsilon"],
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }


def _tokenizer() -> Tokenizer:
    """Each byte is a token, its value the id. A text begins with the begin token."""
    tokenizer = Tokenizer(models.BPE({letter: byte for byte, letter in byte_alphabet()}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([SPECIAL[BEGIN], SPECIAL[END]])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[BEGIN]} $A", special_tokens=[(SPECIAL[BEGIN], BEGIN)]
    )
    return tokenizer


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
