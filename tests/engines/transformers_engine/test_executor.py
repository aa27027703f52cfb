"""transformers' ``generate`` behind the executor: its tokens, its calls, and what becomes of them."""

import gc
import random
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engines.costs.measuring import DecodePoint, PrefillPoint, predict_s
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Batch, Chunk, Draw, Rows
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.sampling.sampler import Sampler
from engines.torch_engine.shape import kv_shape
from engines.transformers_engine.measuring import measure
from kvtransfer.layout import block_bytes
from mesh.wire.requests import Sampling
from tests.engines.runner import Runner
from tests.models.tiny_llama import write_tiny_model
from tests.seeds import seeds

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from engines.transformers_engine.executor import TransformersExecutor

SERVICE = "tiny"
GREEDY = Sampling(max_tokens=64, seed=0, temperature=0.0)
SEEDED = Sampling(max_tokens=64, seed=5, temperature=0.9, top_p=0.9, presence_penalty=0.5, logprobs=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(folder: Path) -> "PreTrainedModel":
    from engines.transformers_engine.executor import load_model  # takes seconds, which only this file is to cost

    return load_model(folder, "float32", "cpu")


@pytest.fixture
def executor(folder: Path, model: "PreTrainedModel") -> "TransformersExecutor":
    from engines.transformers_engine.backend import counted
    from engines.transformers_engine.executor import TransformersExecutor, TransformersModel

    sampler = Sampler.of(folder, ModelConfig.load(folder))
    return TransformersExecutor([TransformersModel(SERVICE, model, counted(16), sampler)], threads=1)


@pytest.fixture
def calls(model: "PreTrainedModel", monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """Rows, longest prompt and most new tokens of each call of `generate`."""
    made: list[tuple[int, int, int]] = []
    generate = model.generate

    def counting(ids: Any, generation_config: Any, **more: Any) -> Any:
        made.append((*ids.shape, generation_config.max_new_tokens))
        return generate(ids, generation_config=generation_config, **more)

    monkeypatch.setattr(model, "generate", counting)
    return made


@pytest.fixture(scope="module")
def torch_runner(folder: Path) -> Runner:
    config = ModelConfig.load(folder)
    size = block_bytes(kv_shape(config, "float32", 16))
    torch_executor = TorchExecutor([TorchService(SERVICE, folder, config, "float32", 16, bytearray(400 * size), size)])
    free = list(range(400))
    return Runner(lambda chunks: torch_executor.execute(Batch(SERVICE, chunks)).chunks, free.pop, 16)


class Row:
    """A request and what was sampled for it."""

    def __init__(self, name: str, prompt: Sequence[int], sampling: Sampling = GREEDY) -> None:
        self.name = name
        self.tokens = list(prompt)
        self.num_computed = 0
        self._num_prompt = len(prompt)
        self._sampling = sampling

    @property
    def sampled(self) -> list[int]:
        return self.tokens[self._num_prompt :]

    def chunk(self, prompt_logprobs: int | None = None) -> Chunk:
        draw = Draw(self._sampling, self.tokens, self._num_prompt, len(self.tokens))
        return Chunk(self.name, self.tokens[self.num_computed :], self.num_computed, (), draw, prompt_logprobs)


def step(executor: "TransformersExecutor", rows: Sequence[Row], batch: Sequence[Row], num_left: int) -> None:
    """Of some rows of a batch; ``num_left`` steps, this one included."""
    chunks = [row.chunk() for row in rows]
    shape = Rows(len(batch), max(len(chunk.tokens) for chunk in chunks), 0, num_left)
    result = executor.execute(Batch(SERVICE, chunks, shape))
    for row, one in zip(rows, result.chunks, strict=True):
        row.num_computed = len(row.tokens)
        assert one.token is not None
        row.tokens.append(one.token)


def prompts(count: int, seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(256) for _ in range(draw.choice((1, 2, 7, 30, 60)))] for _ in range(count)]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("seed", seeds(3))
def test_tokens_are_those_of_the_torch_engine(executor, torch_runner, calls, sampling, seed):
    rows = [Row(f"{seed}-{number}", prompt, sampling) for number, prompt in enumerate(prompts(5, seed))]
    expected = [torch_runner.generate(row.name + str(sampling.seed), row.tokens, sampling, 12) for row in rows]
    torch_runner.blocks.clear()
    for num_left in range(12, 0, -1):
        step(executor, rows, rows, num_left)
    assert [row.sampled for row in rows] == expected
    assert calls == [(5, max(len(row.tokens) for row in rows) - 12, 12)]


def test_rows_that_nobody_wants_any_more_stay_and_change_nothing(executor, torch_runner, calls):
    rows = [Row(str(number), prompt) for number, prompt in enumerate(prompts(3, 7))]
    expected = torch_runner.generate("stays", rows[1].tokens, GREEDY, 9)
    for num_left in range(9, 0, -1):
        step(executor, rows if num_left > 6 else rows[1:2], rows, num_left)
    assert rows[1].sampled == expected
    assert len(calls) == 1


def test_what_comes_back_is_computed_anew(executor, torch_runner, calls):
    """After a pause, half of a batch that failed, the next slice: a call with all of its tokens."""
    row, other = Row("r", prompts(1, 8)[0]), Row("other", [1, 2, 3])
    expected = torch_runner.generate("whole", row.tokens, GREEDY, 6)
    num_prompt = len(row.tokens)
    for batch in ([row], [row], [other], [row], [row, other], [row], [row]):
        step(executor, batch, batch, 20)
    assert row.sampled == expected
    assert [call[:2] for call in calls] == [(1, num_prompt), (1, 3), (1, num_prompt + 2), (2, num_prompt + 3)]


def test_who_begins_again_under_its_old_name_begins_a_call(executor, torch_runner):
    """With one token, as long as a step's."""
    first, again = Row("r", [1, 2, 3]), Row("r", [7])
    expected = torch_runner.generate("again", again.tokens, GREEDY, 5)
    for row in (first, first, *[again] * 5):
        step(executor, [row], [row], 20)
    assert again.sampled == expected


def test_a_call_and_its_memory_go_with_its_last_step(executor, model, monkeypatch):
    caches = caches_of(model, monkeypatch)
    row = Row("r", [1, 2, 3])
    for num_left in (3, 2, 1):
        assert caches == [] or caches[-1]() is not None
        step(executor, [row], [row], num_left)
    step(executor, [Row("next", [4])], [row], 1)  # the thread of calls is free again
    deadline = time.monotonic() + 30
    while any(cache() is not None for cache in caches) and time.monotonic() < deadline:  # the last call is ending
        time.sleep(0.01)
        gc.collect()
    assert [cache() for cache in caches] == [None, None]


def test_a_call_that_is_left_goes_before_the_next_one(executor, model, monkeypatch):
    caches = caches_of(model, monkeypatch)
    for name in "ab":
        row = Row(name, [1, 2, 3])
        step(executor, [row], [row], 50)
        gc.collect()
        assert [cache() is None for cache in caches[:-1]] == [True] * (len(caches) - 1)
    assert caches[-1]() is not None


def caches_of(model: "PreTrainedModel", monkeypatch: pytest.MonkeyPatch) -> list["weakref.ref[Any]"]:
    """Of each call, as far as they are still there. What the library calls the argument changes with its version."""
    from transformers.cache_utils import Cache

    caches: list[weakref.ref[Any]] = []
    prepare = model._prepare_cache_for_generation

    def watched(config: Any, arguments: dict[str, Any], *more: Any) -> None:
        prepare(config, arguments, *more)
        caches.append(weakref.ref(next(value for value in arguments.values() if isinstance(value, Cache))))

    monkeypatch.setattr(model, "_prepare_cache_for_generation", watched)
    return caches


def test_parts_of_prompts_are_refused(executor):
    tokens = [1, 2, 3, 4]
    first = Chunk("r", tokens[:2], 0, (), None)
    last = Chunk("r", tokens[2:], 2, (), Draw(GREEDY, tokens, 4, 4))
    for chunk in (first, last):
        with pytest.raises(ValueError, match="computes prompts whole"):
            executor.execute(Batch(SERVICE, [chunk]))


def test_what_generate_raises_reaches_the_engine_and_others_go_on(executor, torch_runner):
    row = Row("r", [1, 2, 3])
    expected = torch_runner.generate("good", row.tokens, GREEDY, 4)
    bad = Row("bad", [10**6])
    step(executor, [row], [row], 4)
    with pytest.raises(IndexError):
        step(executor, [row, bad], [row, bad], 4)
    for num_left in (3, 2, 1):
        step(executor, [row], [row], num_left)
    assert row.sampled == expected


def test_log_probabilities_of_prompts_and_tokens_are_those_of_the_torch_engine(executor, torch_runner):
    sampling = Sampling(max_tokens=4, seed=0, temperature=0.0, logprobs=2)
    row = Row("r", prompts(1, 3)[0] + [5, 6, 7], sampling)
    [theirs] = torch_runner.execute(torch_runner.chunk("p", row.tokens, 0, sampling, prompt_logprobs=2))
    [ours] = executor.execute(Batch(SERVICE, [row.chunk(prompt_logprobs=2)])).chunks
    assert ours.prompt_logprobs[0] is theirs.prompt_logprobs[0] is None
    for one, other in zip(
        [*ours.prompt_logprobs[1:], ours.logprobs], [*theirs.prompt_logprobs[1:], theirs.logprobs], strict=True
    ):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert [token for token, _ in one.top] == [token for token, _ in other.top]


@pytest.mark.parametrize(("num_tokens", "max_context"), [(4096, 2048), (100, 2048), (4096, 40), (1, 2048)])
def test_costs_are_measured_in_whatever_memory_there_is(executor, calls, num_tokens, max_context):
    cost = measure(executor, SERVICE, num_tokens, max_context, SEEDED)
    assert min(predict_s(cost, point) for point in (PrefillPoint(8), DecodePoint((20,) * 4))) > 0
    most = max(rows * (longest + new) for rows, longest, new in calls)
    assert most <= max(num_tokens, 5)
    assert max(longest + new for _, longest, new in calls) <= max_context


SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "gemma2": {
        "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
        "num_key_value_heads": 2, "sliding_window": 8, "final_logit_softcapping": 2.0, "max_position_embeddings": 128,
    },
}  # fmt: skip


@pytest.mark.parametrize("variant", list(SIZES))
def test_models_of_any_kind_answer_what_generate_answers(tmp_path: Path, variant: str):
    """One that the torch engine does not have, and one whose logits are more than a product."""
    import torch
    import transformers

    from engines.transformers_engine.backend import counted
    from engines.transformers_engine.executor import TransformersExecutor, TransformersModel, load_model

    torch.manual_seed(3)
    shape = transformers.AutoConfig.for_model(variant, vocab_size=96, bos_token_id=1, eos_token_id=2, **SIZES[variant])
    original = transformers.AutoModelForCausalLM.from_config(shape).eval()
    for parameter in original.parameters():
        parameter.data.normal_(0.0, 0.3)
    original.save_pretrained(tmp_path)
    config = ModelConfig.load(tmp_path)
    assert (config.num_layers, config.num_heads, config.max_context, config.vocab_size) == (2, 4, 128, 96)
    model = load_model(tmp_path, "float32", "cpu")
    (tmp_path / "tokenizer.json").write_bytes((write_tiny_model(tmp_path / "other") / "tokenizer.json").read_bytes())
    served = TransformersModel(SERVICE, model, counted(16), Sampler.of(tmp_path, config))
    executor = TransformersExecutor([served], threads=1)
    free = list(range(20))
    runner = Runner(lambda chunks: executor.execute(Batch(SERVICE, chunks)).chunks, free.pop, 16)
    prompt = [5, 17, 80, 3, 44, 9, 61, 23, 70, 12]
    ids = torch.tensor([prompt])
    with torch.no_grad():
        expected = original(ids).logits[0].log_softmax(dim=-1)
    [result] = runner.execute(runner.chunk("a", prompt, 0, GREEDY, prompt_logprobs=0))
    assert result.prompt_logprobs is not None
    for position, entry in enumerate(result.prompt_logprobs[1:]):
        assert entry is not None
        assert entry.logprob == pytest.approx(expected[position, entry.token].item(), abs=1e-4)
    answer = original.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    assert runner.generate("b", prompt, GREEDY, 12) == answer[0, len(prompt) :].tolist()
