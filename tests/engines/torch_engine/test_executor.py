"""What of the torch executor is its own: tests/engines/contract has what every backend owes."""

import random

import pytest
import torch

from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Batch
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.shape import kv_shape
from kvtransfer.layout import block_bytes
from tests.engines.runner import generate_together


def test_many_decodes_of_very_different_lengths_share_a_step(tiny, make_runner, greedy):
    draw = random.Random(3)
    requests = [[draw.randrange(3, 199) for _ in range(3 * draw.randrange(2, 60))] for _ in range(12)]
    alone = make_runner(tiny, num_blocks=700)
    expected = [alone.generate(f"alone-{i}", prompt, greedy(), 4) for i, prompt in enumerate(requests)]
    assert generate_together(make_runner(tiny, num_blocks=700), requests, greedy(), 4, 200) == expected


@pytest.mark.parametrize("variant", ["qwen3", "gemma3"], indirect=True)
def test_services_have_models_and_pools_of_their_own(variant, tiny, greedy):
    other, _ = variant
    services = []
    for name, folder, dtype in (("one", tiny, "float32"), ("two", other, "bfloat16")):
        config = ModelConfig.load(folder)
        page_bytes = block_bytes(kv_shape(config, dtype, 8))
        memory = torch.zeros(8 * page_bytes, dtype=torch.uint8)
        services.append(TorchService(name, folder, config, dtype, 8, memory, page_bytes))
    executor = TorchExecutor(services)
    assert executor.shape("one").dtype == "float32"
    assert executor.shape("two").dtype == "bfloat16"
    assert executor.shape("two").block_size == 8
    assert executor.execute(Batch("two", [])).elapsed_s >= 0


@pytest.mark.parametrize(
    ("num_bytes", "page_blocks", "fault"),
    [(1000, 1, "whole number of pages"), (0, 1, "whole number of pages"), (3, 0.5, "not made for blocks")],
)
def test_memory_that_holds_no_whole_pages_is_refused(tiny, num_bytes, page_blocks, fault):
    config = ModelConfig.load(tiny)
    size = block_bytes(kv_shape(config, "float32", 4))
    page_bytes = int(page_blocks * size)
    memory = bytearray(num_bytes * page_bytes if page_blocks < 1 else num_bytes)
    with pytest.raises(ValueError, match=fault):
        TorchExecutor([TorchService("model", tiny, config, "float32", 4, memory, page_bytes)])


def test_an_unknown_dtype_is_refused_with_the_known_ones(tiny):
    with pytest.raises(ValueError, match=r"'fp8'.*float32, bfloat16, float16, int8"):
        kv_shape(ModelConfig.load(tiny), "fp8", 4)
