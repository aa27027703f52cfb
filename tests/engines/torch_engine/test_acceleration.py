"""What GPUs have and processors do not, over doubles on the processor: attention in place, and graphs of decodes."""

import itertools
import random

import pytest
import torch
from torch.nn import functional

from engines.models.files.model_config import ModelConfig
from engines.torch_engine.acceleration import Acceleration
from engines.torch_engine.executor import TorchExecutor
from engines.torch_engine.graphs.decode_graphs import bucket
from engines.torch_engine.layers.paged_attention import takes
from mesh.wire.requests import Sampling
from mesh.wire.transfers import KVShape
from tests.engines.runner import generate_together
from tests.engines.torch_engine.conftest import write_model


def prompts(count, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(3, 199) for _ in range(draw.randrange(2, 60))] for _ in range(count)]


def reference(queries, keys, values, paging, kind):
    """What `varlen_attn` documents, written down as plainly as can be."""
    assert keys.shape == values.shape
    assert all(tensor.dtype == torch.int32 for tensor in (paging.starts, paging.lengths, paging.tables))
    assert int(paging.lengths.max()) <= paging.most_keys <= paging.tables.shape[1] * keys.shape[1]
    out = torch.empty_like(queries)
    for number, (first, last) in enumerate(itertools.pairwise(paging.starts.tolist())):
        assert last - first <= paging.most_queries
        length, groups = int(paging.lengths[number]), queries.shape[1] // keys.shape[2]
        k, v = (x[paging.tables[number].long()].flatten(0, 1)[:length] for x in (keys, values))
        k, v = (x.transpose(0, 1).repeat_interleave(groups, 0) for x in (k, v))
        seen = torch.ones(last - first, length, dtype=torch.bool).tril(length - (last - first))
        if kind.window is not None:
            seen = seen.triu(length - (last - first) + 1 - kind.window)
        q = queries[first:last].transpose(0, 1)
        out[first:last] = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=kind.scale).transpose(
            0, 1
        )
    return out


class Captures:
    """A graph is what was run: the same function over the same tensors. Counts captures and replays."""

    def __init__(self):
        self.captured = self.replayed = 0

    def __call__(self, run):
        out = run()
        self.captured += 1

        def replay():
            self.replayed += 1
            out.copy_(run())

        return replay, out


@pytest.fixture(params=["in place", "gathered"])
def accelerated(request, monkeypatch):
    """Every executor that is made has it."""
    captures = Captures()
    paged = reference if request.param == "in place" else None
    acceleration = Acceleration(captures, lambda shape: paged)
    plain = TorchExecutor.__init__
    uses = []

    def init(self, services, device="cpu", threads=1):
        plain(self, services, device, threads, acceleration if uses else None)

    monkeypatch.setattr(TorchExecutor, "__init__", init)
    captures.use = lambda: uses.append(True)
    return captures


@pytest.fixture(scope="module", params=["smollm2-tied", "gemma2", "gemma3", "qwen3-moe"])
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    write_model(folder, request.param)
    return folder


SAMPLINGS = {
    "greedy": Sampling(max_tokens=64, seed=0, temperature=0.0),
    "sampled": Sampling(max_tokens=64, seed=6, temperature=1.2, top_p=0.9, top_k=40, repetition_penalty=1.1),
}


@pytest.fixture(scope="module")
def expected(folder, make_runner):
    """Answers of the plain engine, each request alone, by sampling."""
    plain = make_runner(folder, seed=1)
    return {
        name: [plain.generate(f"{name}-{i}", prompt, sampling, 12) for i, prompt in enumerate(prompts(7))]
        for name, sampling in SAMPLINGS.items()
    }


@pytest.mark.parametrize("name", SAMPLINGS)
def test_tokens_are_those_of_the_plain_engine(folder, make_runner, expected, accelerated, name):
    accelerated.use()
    for chunk_tokens in (6, 100):
        runner = make_runner(folder, seed=chunk_tokens)
        assert generate_together(runner, prompts(7), SAMPLINGS[name], 12, chunk_tokens) == expected[name]
    if ModelConfig.load(folder).experts is None:  # what a router chooses is not in a graph
        assert accelerated.replayed > accelerated.captured > 0


def test_logprobs_are_those_of_the_plain_engine(tiny, make_runner, accelerated):
    sampling = Sampling(max_tokens=8, seed=0, temperature=0.0, logprobs=3)
    prompt = prompts(1)[0]

    def run(runner):
        runner.execute(runner.chunk("a", prompt[:-1], 0, None))
        (result,) = runner.execute(runner.chunk("a", prompt, len(prompt) - 1, sampling))
        return result

    plain = run(make_runner(tiny))
    accelerated.use()
    fast = run(make_runner(tiny))
    assert accelerated.replayed == 1
    assert fast.token == plain.token
    assert fast.logprobs.logprob == pytest.approx(plain.logprobs.logprob, abs=1e-4)
    assert [token for token, _ in fast.logprobs.top] == [token for token, _ in plain.logprobs.top]


def test_rows_that_fill_a_bucket_touch_nothing_else(tiny, make_runner, accelerated):
    accelerated.use()
    runner = make_runner(tiny)
    tokens = prompts(5)
    for number, prompt in enumerate(tokens):
        runner.execute(runner.chunk(str(number), prompt[:-1], 0, None))
    memory = runner.executor._models["model"].pool._tokens[0]
    before = memory.clone()
    greedy = Sampling(max_tokens=8, seed=0, temperature=0.0)
    chunks = [runner.chunk(str(n), prompt, len(prompt) - 1, greedy) for n, prompt in enumerate(tokens)]
    runner.execute(*chunks)
    shape = runner.executor.shape("model")
    rows_of_a_token = shape.num_layers * 2 * shape.num_kv_heads
    assert int((memory != before).any(1).sum()) == 5 * rows_of_a_token


def test_buckets_are_few_and_waste_at_most_a_third():
    sizes = [bucket(number) for number in range(1, 257)]
    assert all(number <= size <= max(number + 1, number * 1.5) for number, size in enumerate(sizes, 1))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) <= 16


def test_flash_attention_takes_16_bit_blocks_of_usual_heads():
    shape = KVShape(2, 2, 128, 16, "bfloat16")
    assert takes(shape)
    assert not takes(KVShape(2, 2, 128, 16, "float32"))
    assert not takes(KVShape(2, 2, 320, 16, "bfloat16"))
    assert not takes(KVShape(2, 2, 100, 16, "bfloat16"))


def test_a_draw_is_needed_for_a_graph(tiny, make_runner, accelerated):
    accelerated.use()
    runner = make_runner(tiny)
    runner.execute(runner.chunk("a", [5, 6], 0, None))
    runner.execute(runner.chunk("a", [5, 6, 7], 2, None))
    assert accelerated.captured == 0
