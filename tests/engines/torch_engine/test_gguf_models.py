"""Decoders out of GGUF files: they answer what the checkpoint answers that the file was made from."""

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType

from engines.models.cache import Cache
from engines.models.files.block_kinds import BLOCKS_FILE
from engines.models.prepare import prepare
from tests.engines.models.as_llama_cpp import write_as_llama_cpp
from tests.engines.models.tiny import byte_level_vocabulary, ignore
from tests.engines.torch_engine.conftest import write_model

PROMPT = torch.randint(3, 260, (60,), generator=torch.Generator().manual_seed(1)).tolist()
VARIANTS = [
    "llama2-no-gqa",
    "mistral",
    "qwen2",
    "qwen3",
    "qwen2-moe",
    "qwen3-moe",
    "mixtral",
    "gemma",
    "gemma2",
    "gemma3",
    "phi",
    "phi3",
    "phi4-mini",
    "smollm3",
    "olmo2",
    "starcoder2",
    "gpt-neox",
]
# What llama.cpp knows of an architecture, files do not say.
AS_LLAMA_CPP_HAS_IT: dict[str, dict[str, Any]] = {
    "gemma2": {"query_pre_attn_scalar": 64},
    "gemma3": {"query_pre_attn_scalar": 16},
    "qwen3-moe": {"norm_topk_prob": True, "mlp_only_layers": []},
    "smollm3": {"no_rope_layers": None, "num_hidden_layers": 4},
    "mixtral": {"sliding_window": None},
}


def made(folder: Path, variant: str, kind: GGMLQuantizationType = GGMLQuantizationType.F32) -> tuple[Path, Any]:
    """The prepared folder of a GGUF file, and transformers' model of the checkpoint that it was made from."""
    changes = {"vocab_size": len(byte_level_vocabulary())} | AS_LLAMA_CPP_HAS_IT.get(variant, {})
    model = write_model(folder / "original", variant, **changes)
    write_as_llama_cpp(folder / "original", folder / "tiny.gguf", kind)
    return prepare(str(folder / "tiny.gguf"), ignore, Cache(folder / "cache")), model


def answer(model: Any) -> list[int]:
    prompt = torch.tensor([PROMPT])
    out = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False, eos_token_id=None
    )
    tokens: list[int] = out[0, len(PROMPT) :].tolist()
    return tokens


@pytest.mark.parametrize("variant", VARIANTS)
def test_tokens_are_those_of_the_checkpoint(tmp_path, variant, make_runner, greedy):
    import transformers

    folder, model = made(tmp_path, variant)
    expected = answer(model)
    runner = make_runner(folder)
    assert runner.generate("whole", PROMPT, greedy(), 20) == expected
    assert runner.generate("in chunks", PROMPT, greedy(), 20, split=7) == expected
    # The folder is one that Hugging Face's tools read, too.
    assert answer(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)) == expected


@pytest.mark.parametrize("variant", ["qwen2-moe", "gemma3", "phi3", "gpt-neox"])
def test_blocks_of_codes_are_computed_from_as_they_are(tmp_path, variant, make_runner, greedy):
    import transformers

    folder, _ = made(tmp_path, variant, GGMLQuantizationType.Q8_0)
    assert (folder / BLOCKS_FILE).exists()
    expected = answer(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    assert make_runner(folder).generate("a", PROMPT, greedy(), 20, split=9) == expected
