"""Gateways in front of a model with room for tools, with a chat template of choice."""

import json
import shutil

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as RawTokenizer

from mesh.topology.schema import ServiceSpec, Slo
from router.api.openai.models import ServedModel
from tests.router.api.conftest import TEMPLATE, gateway_of

THINKING = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['reasoning_content'] %}"
    "{{ '<think>\n' + message['reasoning_content'] + '\n</think>\n\n' }}{% endif %}"
    "{{ message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}"
    "{% elif opens %}{{ '<think>\n' }}{% endif %}{% endif %}"
)


def model_with(folder, source, template, added=()):
    """A copy of a prepared model with another template, further tokens and a longer context."""
    shutil.copytree(source, folder)
    tokenizer = RawTokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(text, special=False) for text in added])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text())
    config |= {"max_position_embeddings": 1_000_000, "vocab_size": tokenizer.get_vocab_size()}
    (folder / "config.json").write_text(json.dumps(config))
    names = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(names | {"chat_template": template}))
    return ServedModel.load(ServiceSpec("tiny", str(folder), Slo(1.0, 0.1)), folder)


@pytest.fixture(scope="session")
def model(model_folder, tmp_path_factory):
    """Its template shows no tools."""
    return model_with(tmp_path_factory.mktemp("roomy") / "model", model_folder, TEMPLATE)


@pytest.fixture(scope="session")
def thinking_model(model_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("thinking") / "model"
    return model_with(folder, model_folder, THINKING, ("<think>", "</think>"))


@pytest.fixture
async def gateway(model):
    async with gateway_of(model, max_body_bytes=5 << 20) as made:
        yield made


@pytest.fixture
async def thinker(thinking_model):
    async with gateway_of(thinking_model, max_body_bytes=20_000) as made:
        yield made


def prompt_of(gateway):
    return gateway.model.tokenizer.decode(gateway.router.specs[-1].prompt, skip_special_tokens=False)
