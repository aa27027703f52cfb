"""What a request gets must not depend on its company, on where its blocks lie, or on how its prompt is split."""

import random

import pytest
import torch

from engines.batch import Batch, Chunk, Draw
from engines.models.config import ModelConfig
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.shape import kv_shape
from kvtransfer.layout import block_bytes
from mesh.messages import Sampling


def prompts(count, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(3, 199) for _ in range(draw.randrange(2, 60))] for _ in range(count)]


def run_together(runner, requests, sampling, count, chunk_tokens):
    """All requests at once, at most ``chunk_tokens`` of each a step, so that prefills and decodes mix."""
    tokens = [list(prompt) for prompt in requests]
    computed = [0] * len(requests)
    while any(len(tokens[i]) < len(prompt) + count for i, prompt in enumerate(requests)):
        active = [i for i, prompt in enumerate(requests) if len(tokens[i]) < len(prompt) + count]
        chunks = []
        for i in active:
            upto = min(len(tokens[i]), computed[i] + chunk_tokens + i)
            last = upto == len(tokens[i])
            chunks.append(
                runner.chunk(str(i), tokens[i][:upto], computed[i], sampling if last else None, len(requests[i]))
            )
            computed[i] = upto
        for i, result in zip(active, runner.execute(*chunks), strict=True):
            if result.token is not None:
                tokens[i].append(result.token)
    return [tokens[i][len(prompt) :] for i, prompt in enumerate(requests)]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=64, seed=0, temperature=0.0),
        Sampling(max_tokens=64, seed=5, temperature=0.9),
        Sampling(max_tokens=64, seed=6, temperature=1.2, top_p=0.9, top_k=40, min_p=0.01, repetition_penalty=1.1),
    ],
)
def test_mixed_batches_give_the_tokens_of_lonely_runs(tiny, make_runner, sampling):
    requests = prompts(7)
    alone = make_runner(tiny, seed=1)
    expected = [alone.generate(f"alone-{i}", prompt, sampling, 12) for i, prompt in enumerate(requests)]
    for chunk_tokens in (1, 6, 100):
        assert run_together(make_runner(tiny, seed=chunk_tokens), requests, sampling, 12, chunk_tokens) == expected


def test_many_decodes_of_very_different_lengths_share_a_step(tiny, make_runner, greedy):
    requests = [prompt * 3 for prompt in prompts(12, seed=3)]
    alone = make_runner(tiny, num_blocks=700)
    expected = [alone.generate(f"alone-{i}", prompt, greedy(), 4) for i, prompt in enumerate(requests)]
    assert run_together(make_runner(tiny, num_blocks=700), requests, greedy(), 4, 200) == expected


def test_prompt_logprobs_are_the_same_however_the_prompt_is_split(tiny, make_runner, greedy):
    prompt = [3 + 7 * i % 190 for i in range(90)]
    whole_runner, split_runner = make_runner(tiny), make_runner(tiny)
    [whole] = whole_runner.execute(whole_runner.chunk("a", prompt, 0, greedy(), prompt_logprobs=3))
    parts = []
    for start, end in ((0, 1), (1, 40), (40, 41), (41, 90)):
        chunk = split_runner.chunk("a", prompt[:end], start, greedy() if end == 90 else None, prompt_logprobs=3)
        [result] = split_runner.execute(chunk)
        parts += result.prompt_logprobs
    assert parts[0] is None
    assert [entry.token for entry in parts[1:]] == prompt[1:]
    for one, other in zip(whole.prompt_logprobs[1:], parts[1:], strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert [token for token, _ in one.top] == [token for token, _ in other.top]


def test_nothing_is_drawn_in_the_middle_of_a_prompt(tiny, make_runner):
    runner = make_runner(tiny)
    [result] = runner.execute(runner.chunk("a", [5, 6, 7], 0))
    assert (result.token, result.logprobs, result.prompt_logprobs) == (None, None, None)


def test_an_empty_batch_is_no_work(tiny, make_runner):
    assert make_runner(tiny).execute() == []


def test_results_come_in_the_order_of_the_chunks(tiny, make_runner, greedy):
    runner = make_runner(tiny)
    requests = [[9, 8, 7, 6], [5], [11, 12, 13], [4], [17]]
    alone = make_runner(tiny)
    expected = [alone.execute(alone.chunk(str(i), p, 0, greedy()))[0].token for i, p in enumerate(requests)]
    chunks = [runner.chunk(str(i), prompt, 0, greedy()) for i, prompt in enumerate(requests)]
    assert [result.token for result in runner.execute(*chunks)] == expected


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


def test_kv_lies_in_the_memory_that_was_given(tiny, greedy):
    """A copy of a block's bytes is a copy of the block: another pool goes on from it."""
    config = ModelConfig.load(tiny)
    size = block_bytes(kv_shape(config, "float32", 4))
    memories = [bytearray(4 * size) for _ in range(2)]
    first, second = (
        TorchExecutor([TorchService("model", tiny, config, "float32", 4, memory, size)]) for memory in memories
    )
    prompt = [5, 6, 7, 8, 9, 10]
    draw = Draw(greedy(), prompt, len(prompt), len(prompt))
    [expected] = first.execute(Batch("model", [Chunk("a", prompt, 0, [2, 0], draw)])).chunks
    memories[1][3 * size :] = memories[0][2 * size : 3 * size]
    [moved] = second.execute(Batch("model", [Chunk("a", prompt[4:], 4, [3, 1], draw)])).chunks
    assert moved.token == expected.token


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
