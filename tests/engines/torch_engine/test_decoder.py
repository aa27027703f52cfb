"""The forward pass against transformers', on tiny random models of every variant."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from engines.models.errors import ModelError
from tests.engines.torch_engine.compiled import compiled

CLOSE = 3e-4  # log-probabilities of transformers in float32 are up to 2e-4 from those in float64
PROMPT = torch.randint(3, 199, (70,), generator=torch.Generator().manual_seed(1)).tolist()


def reference_logprobs(model, tokens):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([tokens])).logits[0], dim=-1)


def test_every_position_predicts_what_transformers_predicts(variant, make_runner, greedy):
    folder, model = variant
    runner = make_runner(folder)
    [result] = runner.execute(runner.chunk("a", PROMPT, 0, greedy(logprobs=3), prompt_logprobs=2))
    expected = reference_logprobs(model, PROMPT)
    assert result.prompt_logprobs[0] is None
    for position, entry in enumerate(result.prompt_logprobs[1:]):
        assert entry.token == PROMPT[position + 1]
        assert entry.logprob == pytest.approx(expected[position, entry.token].item(), abs=CLOSE)
    assert result.token == expected[-1].argmax().item() == result.logprobs.token
    values, ids = expected[-1].topk(3)
    assert [token for token, _ in result.logprobs.top] == ids.tolist()
    assert [value for _, value in result.logprobs.top] == pytest.approx(values.tolist(), abs=CLOSE)


def test_greedy_tokens_are_those_of_transformers_however_the_prompt_is_split(variant, make_runner, greedy):
    folder, model = variant
    prompt = torch.tensor([PROMPT])
    expected = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    for split in (1, 7, 64, 1000):
        tokens = make_runner(folder, seed=split).generate("a", PROMPT, greedy(), 12, split)
        assert tokens == expected[0, len(PROMPT) :].tolist(), f"in chunks of {split}"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", pytest.param("int8", marks=compiled)])
@pytest.mark.parametrize("variant", ["smollm2-tied", "gemma3", "qwen3-moe", "gpt-neox", "phi3"], indirect=True)
def test_other_dtypes_stay_close_to_float32(variant, make_runner, greedy, dtype):
    def logprobs(dtype):
        runner = make_runner(variant[0], dtype)
        [result] = runner.execute(runner.chunk("a", PROMPT, 0, greedy(), prompt_logprobs=0))
        return torch.tensor([entry.logprob for entry in result.prompt_logprobs[1:]])

    exact = logprobs("float32")
    assert (logprobs(dtype) - exact).abs().mean() < 0.25 * exact.std()


@compiled
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("variant", ["smollm2-tied", "gemma3", "phi3"], indirect=True)
def test_kv_in_int8_stays_close_to_that_of_the_dtype_in_whole_prompts_and_token_by_token(
    variant, make_runner, greedy, dtype
):
    def logprobs(kv_dtype, size):
        runner, entries = make_runner(variant[0], dtype, kv_dtype=kv_dtype), []
        for start in range(0, len(PROMPT), size):
            chunk = runner.chunk("a", PROMPT[: start + size], start, greedy(logprobs=0))
            entries.append(runner.execute(chunk)[0].logprobs)
        return torch.tensor([entry.logprob for entry in entries])  # of the likeliest token after each chunk

    for size in (1, 7):
        exact = logprobs(None, size)
        assert 0 < (logprobs("int8", size) - exact).abs().mean() < 0.25 * exact.std()


def test_kv_in_int8_needs_kernels_that_take_the_model(tiny, make_runner):
    with pytest.raises(ModelError, match="kv_dtype int8 needs kernels that were compiled, dtype float32, bfloat16 or"):
        make_runner(tiny, "float16", kv_dtype="int8")


@pytest.mark.parametrize("variant", ["gemma3"], indirect=True)
@pytest.mark.parametrize("names", ["language_model.model.", "model.language_model."])
def test_the_text_part_of_a_model_that_reads_images_is_that_model(variant, tmp_path, make_runner, greedy, names):
    folder, _ = variant
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": config}))
    (tmp_path / "generation_config.json").write_text("{}")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name.replace("model.", names, 1): weight for name, weight in weights.items()}, tmp_path / "model.safetensors"
    )
    expected = make_runner(folder).generate("a", PROMPT, greedy(), 5)
    assert make_runner(tmp_path).generate("a", PROMPT, greedy(), 5) == expected
