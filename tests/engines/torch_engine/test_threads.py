"""Threads that others spare: used from layer to layer, given back, and without a part in what comes out."""

import pytest
import torch

from engines.scheduling.batch import Batch, Chunk, Draw
from engines.torch_engine.threads import FEW_ROWS
from mesh.wire.requests import Sampling

GREEDY = Draw(Sampling(max_tokens=1, seed=0, temperature=0.0), (), 0, 0)


@pytest.fixture(autouse=True)
def as_it_was():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def prompt(num_tokens):
    return Batch("model", [Chunk("p", [3 + i % 40 for i in range(num_tokens)], 0, list(range(num_tokens)), GREEDY)])


def test_a_prompt_gets_what_is_there_before_each_layer(tiny, make_runner):
    executor = make_runner(tiny, block_size=1, num_blocks=64).executor
    [alone] = executor.execute(prompt(2 * FEW_ROWS)).chunks
    offered, used = iter([1, 2, *[1] * 99]), []

    def available():
        used.append(torch.get_num_threads())
        return next(offered)

    executor.threads.follow(available)
    result = executor.execute(prompt(2 * FEW_ROWS))
    assert used[:3] == [1, 1, 2]
    assert torch.get_num_threads() == 1
    assert result.had_extra_threads
    assert result.chunks[0].token == alone.token
    assert not executor.execute(prompt(2 * FEW_ROWS)).had_extra_threads  # none were offered any more


def test_few_tokens_are_computed_with_its_own(tiny, make_runner):
    executor = make_runner(tiny, block_size=1, num_blocks=64).executor
    executor.threads.follow(lambda: 2)
    assert executor.execute(prompt(FEW_ROWS)).had_extra_threads
    assert torch.get_num_threads() == 2
    assert not executor.execute(prompt(FEW_ROWS - 1)).had_extra_threads
    assert torch.get_num_threads() == 1
