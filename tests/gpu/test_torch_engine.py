"""The torch engine on a GPU: the tokens of the processor, with and without attention in place."""

import pytest
import torch

from bench.models.random_llama import SMALL, write_random_llama
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Batch, Chunk, Draw
from engines.torch_engine.acceleration import Acceleration, cuda_acceleration
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.gpu_memory import pages_tensor
from engines.torch_engine.graphs.decode_graphs import capture_cuda
from engines.torch_engine.layers.paged_attention import Paging, flash_attention
from engines.torch_engine.shape import kv_shape
from kvtransfer.gpu.device_memory import DeviceMemory
from kvtransfer.layout import PageLayout
from mesh.wire.requests import Sampling
from tests.engines.torch_engine.test_acceleration import reference

BLOCK, BLOCKS = 16, 64
GREEDY = Sampling(max_tokens=64, seed=0, temperature=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(3)
    return write_random_llama(tmp_path_factory.mktemp("model"), SMALL, "float32", "cpu")


def executor(folder, dtype, where, gpu, acceleration=None):
    config = ModelConfig.load(folder)
    layout = PageLayout.of([kv_shape(config, dtype, BLOCK)], BLOCKS)
    memory = bytearray(BLOCKS * layout.page_bytes) if where == "cpu" else pages_tensor(DeviceMemory(layout, gpu))
    service = TorchService("model", folder, config, dtype, BLOCK, memory, layout.page_bytes)
    return TorchExecutor([service], where, acceleration=acceleration)


def generate(engine, prompts, count):
    """Prefill each alone, then decode all together."""
    tokens = [list(prompt) for prompt in prompts]
    tables = [list(range(n * 8, n * 8 + 8)) for n in range(len(prompts))]
    for step in range(count):
        chunks = [
            Chunk(str(n), own if step == 0 else own[-1:], 0 if step == 0 else len(own) - 1, table, draw(own, prompt))
            for n, (own, table, prompt) in enumerate(zip(tokens, tables, prompts, strict=True))
        ]
        for own, result in zip(tokens, engine.execute(Batch("model", chunks)).chunks, strict=True):
            own.append(result.token)
    return [own[len(prompt) :] for own, prompt in zip(tokens, prompts, strict=True)]


def draw(tokens, prompt):
    return Draw(GREEDY, tokens, len(prompt), len(tokens))


PROMPTS = [[3 + (7 * i * n) % 900 for i in range(5 + 11 * n)] for n in range(1, 6)]


def test_tokens_in_float32_are_those_of_the_processor(folder, device):
    torch.backends.cuda.matmul.allow_tf32 = False
    expected = generate(executor(folder, "float32", "cpu", device), PROMPTS, 12)
    assert generate(executor(folder, "float32", "cuda:0", device), PROMPTS, 12) == expected


def test_graphs_change_nothing(folder, device):
    """The same kernels, captured or not."""

    def eager(run):
        out = run()
        return (lambda: out.copy_(run())), out

    plain = executor(folder, "bfloat16", "cuda:0", device, Acceleration(eager, lambda shape: None))
    graphs = executor(folder, "bfloat16", "cuda:0", device, Acceleration(capture_cuda, lambda shape: None))
    assert generate(graphs, PROMPTS, 12) == generate(plain, PROMPTS, 12)


def test_attention_in_place_is_that_of_the_reference(device):
    flash = flash_attention(torch.device("cuda:0"))
    if flash is None:
        pytest.skip("no FlashAttention 3 here; the log says why")
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    def ints(values):
        return torch.tensor(values, dtype=torch.int32, device="cuda")

    keys, values, queries = normal(40, BLOCK, 2, 64), normal(40, BLOCK, 2, 64), normal(1 + 7, 4, 64)
    paging = Paging(ints([0, 1, 8]), ints([35, 20]), ints([[4, 9, 2], [30, 7, 7]]), 7, 35)
    found = flash(queries, keys, values, paging)
    host = Paging(*(tensor.cpu() for tensor in (paging.starts, paging.lengths, paging.tables)), 7, 35)
    expected = reference(queries.cpu().float(), keys.cpu().float(), values.cpu().float(), host)
    torch.testing.assert_close(found.cpu().float(), expected, atol=2e-2, rtol=2e-2)


def test_whatever_this_gpu_has_decodes(folder, device):
    engine = executor(folder, "bfloat16", "cuda:0", device, cuda_acceleration(torch.device("cuda:0")))
    answers = generate(engine, PROMPTS, 8)
    assert all(0 <= token < SMALL.vocab for answer in answers for token in answer)
