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
}


def _write_model(folder: Path, variant: str) -> Any:
    """Write the variant with random weights of a size that makes every part matter. Returns transformers' own model."""
    import transformers

    model_type, changes = VARIANTS[variant]
    config = transformers.AutoConfig.for_model(model_type, **(COMMON | changes))
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
    model.save_pretrained(folder)
    return model


def _executor_for(folder: Path, dtype: str, block_size: int, num_blocks: int) -> TorchExecutor:
    config = ModelConfig.load(folder)
    page_bytes = block_bytes(kv_shape(config, dtype, block_size))
    memory = bytearray(num_blocks * page_bytes)
    return TorchExecutor([TorchService("model", folder, config, dtype, block_size, memory, page_bytes)])


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
    return folder, _write_model(folder, request.param)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one tiny model."""
    folder = tmp_path_factory.mktemp("tiny")
    _write_model(folder, "smollm2-tied")
    return folder


@pytest.fixture(scope="session")
def make_runner() -> Callable[..., TorchRunner]:
    def make(
        folder: Path, dtype: str = "float32", block_size: int = 4, num_blocks: int = 256, seed: int = 0
    ) -> TorchRunner:
        return TorchRunner(_executor_for(folder, dtype, block_size, num_blocks), block_size, num_blocks, seed)

    return make


@pytest.fixture(scope="session")
def greedy() -> Callable[..., Sampling]:
    def make(**changes: Any) -> Sampling:
        return Sampling(max_tokens=64, seed=0, temperature=0.0, **changes)

    return make
