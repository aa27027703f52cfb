"""Tiny random models of every variant, written as Hugging Face writes them, and the executor that runs them."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Batch
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.shape import kv_shape
from kvtransfer.layout import block_bytes
from mesh.wire.requests import Sampling
from tests.engines.runner import Runner

COMMON: dict[str, Any] = {
    "vocab_size": 199,
    "hidden_size": 96,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.5, 2.0, 3.0],
    "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "original_max_position_embeddings": 128,
}
MOE = {"num_experts": 4, "moe_intermediate_size": 64, "num_experts_per_tok": 2, "head_dim": 16}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2-no-gqa": ("llama", {"num_key_value_heads": 6}),
    "llama3": ("llama", {"rope_parameters": LLAMA3}),
    "llama-linear-bias": ("llama", {"rope_parameters": LINEAR, "attention_bias": True}),
    "llama-mlp-bias": ("llama", {"mlp_bias": True}),
    "smollm2-tied": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 3}),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {}),
    "qwen3-yarn": ("qwen3", {"rope_parameters": YARN}),
    "mistral-window": ("mistral", {"sliding_window": 20}),
    "qwen2-windows": ("qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen2-moe": ("qwen2_moe", MOE | {"num_experts_per_tok": 2, "shared_expert_intermediate_size": 64}),
    "qwen3-moe": ("qwen3_moe", MOE | {"norm_topk_prob": True, "mlp_only_layers": [1]}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "sliding_window": 40}),
    "gemma": ("gemma", {}),
    "gemma2": (
        "gemma2",
        {"head_dim": 64, "sliding_window": 20, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0},
    ),
    "gemma3": ("gemma3_text", {"sliding_window": 20, "num_hidden_layers": 7, "query_pre_attn_scalar": 24}),
    "phi": ("phi", {"num_key_value_heads": 6}),
    "phi3": ("phi3", {"sliding_window": 33}),
    "phi4-mini": ("phi3", {"rope_parameters": LONGROPE | {"partial_rotary_factor": 0.75}}),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0, 1]}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", {"sliding_window": 20, "num_hidden_layers": 4}),
    "starcoder2": ("starcoder2", {"sliding_window": 50}),
    "gpt-neox": ("gpt_neox", {"num_key_value_heads": 6}),
    "gpt-neox-in-turn": (
        "gpt_neox",
        {"num_key_value_heads": 6, "use_parallel_residual": False, "hidden_act": "gelu_new"},
    ),
}


def write_model(folder: Path, variant: str, **more: Any) -> Any:
    """Write the variant with random weights of a size that makes every part matter. Returns transformers' own model."""
    import transformers

    model_type, changes = VARIANTS[variant]
    config = transformers.AutoConfig.for_model(model_type, **(COMMON | changes | more))
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
    model.save_pretrained(folder)
    return model


def _executor_for(folder: Path, dtype: str, block_size: int, num_blocks: int, kv_dtype: str | None) -> TorchExecutor:
    config = ModelConfig.load(folder)
    page_bytes = block_bytes(kv_shape(config, dtype, block_size, kv_dtype))
    memory = bytearray(num_blocks * page_bytes)
    service = TorchService("model", folder, config, dtype, block_size, memory, page_bytes, kv_dtype=kv_dtype)
    return TorchExecutor([service])


class TorchRunner(Runner):
    """Of an executor by itself; blocks are handed out in random order."""

    def __init__(self, executor: TorchExecutor, block_size: int, num_blocks: int, seed: int) -> None:
        free = list(range(num_blocks))
        random.Random(seed).shuffle(free)
        super().__init__(lambda chunks: executor.execute(Batch("model", chunks)).chunks, free.pop, block_size)
        self.executor = executor


@pytest.fixture(scope="session", params=list(VARIANTS))
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with a tiny model of each variant, and transformers' own model of it."""
    folder = tmp_path_factory.mktemp(request.param)
    return folder, write_model(folder, request.param)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one tiny model."""
    folder = tmp_path_factory.mktemp("tiny")
    write_model(folder, "smollm2-tied")
    return folder


@pytest.fixture(scope="session")
def make_runner() -> Callable[..., TorchRunner]:
    def make(
        folder: Path,
        dtype: str = "float32",
        block_size: int = 4,
        num_blocks: int = 256,
        seed: int = 0,
        kv_dtype: str | None = None,
    ) -> TorchRunner:
        executor = _executor_for(folder, dtype, block_size, num_blocks, kv_dtype)
        return TorchRunner(executor, block_size, num_blocks, seed)

    return make


@pytest.fixture(scope="session")
def greedy() -> Callable[..., Sampling]:
    def make(**changes: Any) -> Sampling:
        return Sampling(max_tokens=64, seed=0, temperature=0.0, **changes)

    return make
