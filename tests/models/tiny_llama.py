"""A tiny random Llama with a byte-level tokenizer and a chat template: a real model folder that loads in an instant."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from bench.models.llama_config import LlamaShape, write_config

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 2, 4, 2, 16
MAX_CONTEXT = 2048  # tokens
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_model(folder: Path, seed: int = 0, max_context: int = MAX_CONTEXT) -> Path:
    """Write the model and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab_size = _write_tokenizer(folder)
    shape = LlamaShape(LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, vocab_size)
    write_config(folder, shape, max_context, tied=True, bos=vocab_size - 3, eos=vocab_size - 1)
    save_file(_weights(vocab_size, seed), folder / "model.safetensors", {"format": "pt"})
    return folder


def _write_tokenizer(folder: Path) -> int:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"chat_template": CHAT_TEMPLATE, "eos_token": SPECIAL[2], "bos_token": SPECIAL[1]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer.get_vocab_size()


def _weights(vocab_size: int, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (generator.standard_normal(shape) * 0.2).astype(np.float32)

    weights = {
        "model.embed_tokens.weight": normal(vocab_size, HIDDEN),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
    }
    for layer in range(LAYERS):
        weights |= {
            f"model.layers.{layer}.{name}.weight": value
            for name, value in {
                "input_layernorm": np.ones(HIDDEN, np.float32),
                "post_attention_layernorm": np.ones(HIDDEN, np.float32),
                "self_attn.q_proj": normal(HEADS * HEAD_DIM, HIDDEN),
                "self_attn.k_proj": normal(KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.v_proj": normal(KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.o_proj": normal(HIDDEN, HEADS * HEAD_DIM),
                "mlp.gate_proj": normal(INTERMEDIATE, HIDDEN),
                "mlp.up_proj": normal(INTERMEDIATE, HIDDEN),
                "mlp.down_proj": normal(HIDDEN, INTERMEDIATE),
            }.items()
        }
    return weights
