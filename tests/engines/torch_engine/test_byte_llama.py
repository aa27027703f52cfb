"""The byte-level model of the repository: what transformers makes of it, and that it has learnt to write."""

import json
import math
import random
from pathlib import Path

import pytest
import torch

from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.models.text.tokenizer import Tokenizer
from mesh.topology.parse import load

DEPLOY = Path(__file__).parents[3] / "deploy"
FOLDER = DEPLOY / "models/byte-llama"
PROMPTS = ["Return the", "", "The following functions are", "x" * 300, "naïve 狐狸 🦊", "Raise ValueError if "]
COUNT = 60
# Written for this test; a byte in English takes a model of single bytes more than 4 bits.
UNSEEN = "Return a list of the names of all files in the folder. If the folder does not exist, an error is raised."


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.load(FOLDER)


@pytest.fixture(scope="module")
def expected(tokenizer):
    import transformers

    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)

    def generate(prompt):
        ids = torch.tensor([tokenizer.encode(prompt)])
        mask = torch.ones_like(ids)
        out = model.generate(ids, attention_mask=mask, max_new_tokens=COUNT, do_sample=False, eos_token_id=None)
        return out[0, ids.shape[1] :].tolist()

    return {prompt: generate(prompt) for prompt in PROMPTS}


@pytest.fixture(scope="module")
def runner(make_runner):
    return make_runner(FOLDER, block_size=16, num_blocks=400)


def test_it_is_small_and_of_another_shape_than_the_default_model():
    config = ModelConfig.load(FOLDER)
    assert (config.num_layers, config.num_kv_heads, config.head_dim) == (4, 2, 32)
    assert (config.max_context, config.bos_token_id, config.eos_token_ids) == (1024, 256, (257,))
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 5e6


def test_the_topology_that_ships_finds_it():
    topology = load(DEPLOY / "shared.toml")
    folder = prepared_dir(topology.service("byte-llama").model)
    assert folder.samefile(FOLDER)
    assert all(len(engine.services) == 2 for engine in topology.engines)


@pytest.mark.parametrize("split", [10**6, 7, 1])
def test_greedy_tokens_are_those_of_transformers(runner, tokenizer, expected, greedy, split):
    for prompt in PROMPTS:
        name = f"{prompt}-{split}"
        assert runner.generate(name, tokenizer.encode(prompt), greedy(), COUNT, split) == expected[prompt]


def test_texts_have_the_tokens_of_transformers(tokenizer):
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(FOLDER)
    for text in [*PROMPTS, "<|begin|>a<|end|>b", "a\x00\r\n\tb"]:
        tokens = tokenizer.encode(text)
        assert tokens == theirs.encode(text)
        for skip in (False, True):
            assert tokenizer.decode(tokens, skip) == theirs.decode(tokens, skip_special_tokens=skip)
    assert tokenizer.encode("ab") == [256, 97, 98]
    generator = random.Random(1)
    for _ in range(50):
        tokens = generator.choices(range(258), k=generator.randrange(40))
        assert tokenizer.decode(tokens) == bytes(token for token in tokens if token < 256).decode(errors="replace")


def test_it_has_learnt_to_write(runner, tokenizer, greedy):
    tokens = tokenizer.encode(UNSEEN)
    [result] = runner.execute(runner.chunk("unseen", tokens, 0, greedy(), prompt_logprobs=0))
    bits = [-entry.logprob / math.log(2) for entry in result.prompt_logprobs[1:]]
    assert sum(bits) / len(bits) < 2.3


def test_weights_are_stored_in_the_dtype_that_its_configuration_names():
    from safetensors import safe_open

    dtype = getattr(torch, json.loads((FOLDER / "config.json").read_text())["torch_dtype"])
    with safe_open(FOLDER / "model.safetensors", framework="pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {dtype}  # noqa: SIM118
