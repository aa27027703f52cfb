"""Recorded decodes are those of the decoder, bit for bit, and what they write to is shared."""

import pytest
import torch

from engines.torch_engine.graphs.recorded import StepRecorder
from engines.torch_engine.threads import FEW_ROWS
from mesh.wire.requests import Sampling
from tests.engines.torch_engine.compiled import compiled
from tests.engines.torch_engine.conftest import write_model

pytestmark = compiled
SAMPLING = Sampling(max_tokens=64, seed=3, temperature=1.1, logprobs=4)


@pytest.fixture(params=["smollm2-tied", "qwen3", "gemma2", "phi", "gpt-neox", "llama-mlp-bias"])
def folder(request, tmp_path):
    write_model(tmp_path, request.param)
    return tmp_path


def decoded(runner, num_requests, steps):
    """What is sampled, and all log-probabilities, of requests of various lengths that decode together."""
    prompts = [list(range(3, 9 + 11 * (number % 4))) for number in range(num_requests)]
    for number, prompt in enumerate(prompts):
        runner.execute(runner.chunk(str(number), prompt[:-1], 0))
    found = []
    for _ in range(steps):
        chunks = [runner.chunk(str(i), tokens, len(tokens) - 1, SAMPLING) for i, tokens in enumerate(prompts)]
        results = runner.execute(*chunks)
        found += [(result.token, result.logprobs) for result in results]
        for tokens, result in zip(prompts, results, strict=True):
            tokens.append(result.token)
    return found


def graphs_of(runner):
    return runner.executor._models["model"]._graphs._graphs


def test_logprobs_are_those_of_the_decoder_to_the_last_bit(folder, make_runner):
    recorded, plain = make_runner(folder), make_runner(folder)
    plain.executor._models["model"]._graphs = None
    for num_requests in (1, 3):
        assert decoded(recorded, num_requests, 20) == decoded(plain, num_requests, 20)
    assert {requests for requests, _ in graphs_of(recorded)} == {1, 3}
    assert len(graphs_of(recorded)) > 2  # contexts grew out of the first ones


def test_records_share_what_kernels_write_to(tiny, make_runner):
    runner = make_runner(tiny)
    for num_requests in (4, 3):
        decoded(runner, num_requests, 2)
    assert len({graph.logits.data_ptr() for graph in graphs_of(runner).values()}) == 1


def test_steps_whose_threads_may_go_are_not_replayed(tiny, make_runner):
    runner = make_runner(tiny)
    runner.executor.threads.follow(lambda: 2)
    decoded(runner, FEW_ROWS, 2)
    assert not graphs_of(runner)
    runner.executor.threads.follow(lambda: 1)
    runner.blocks.clear()
    decoded(runner, FEW_ROWS, 2)
    assert {requests for requests, _ in graphs_of(runner)} == {FEW_ROWS}


def test_a_record_computes_from_what_its_inputs_hold_now():
    numbers, sums = torch.ones(4), torch.zeros(4)
    with torch.inference_mode():
        replay, out = StepRecorder()(lambda: sums.add_(numbers.view(2, 2).flatten() * 2).sum()[None] + 1)
        replay()  # of what was just computed
        assert (out.tolist(), sums.tolist()) == ([9], [2] * 4)
        numbers.fill_(3)
        replay()
        assert (out.tolist(), sums.tolist()) == ([33], [8] * 4)


def test_what_leaves_tensors_cannot_be_recorded():
    numbers = torch.ones(2)
    with torch.inference_mode(), pytest.raises(AssertionError, match="cannot be recorded"):
        StepRecorder()(lambda: numbers * numbers.sum().item())
