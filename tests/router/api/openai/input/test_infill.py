"""Text between a beginning and an end."""

import pytest

from engines.models.text.infill import infill_tokens
from tests.router.api.conftest import TEMPLATE, gateway_of
from tests.router.api.openai.chat.conftest import model_with, prompt_of
from tests.router.api.test_errors import error_of

QWEN = {"<|fim_prefix|>": 1, "<|fim_suffix|>": 2, "<|fim_middle|>": 3}


def test_families_have_their_own_order():
    assert infill_tokens(QWEN.get).prompt([7], [8]) == [1, 7, 2, 8, 3]
    assert infill_tokens({"[PREFIX]": 1, "[SUFFIX]": 2}.get).prompt([7], [8]) == [2, 8, 1, 7]
    assert infill_tokens({"<|fim_prefix|>": 1}.get) is None


@pytest.fixture(scope="module")
def coder(model_folder, tmp_path_factory):
    return model_with(tmp_path_factory.mktemp("coder") / "model", model_folder, TEMPLATE, tuple(QWEN))


async def test_a_suffix_is_put_where_the_model_wants_it(coder):
    async with gateway_of(coder, max_body_bytes=20_000) as gateway:
        assert (await gateway.complete(prompt="def f(", suffix="return x")).status_code == 200
        assert prompt_of(gateway) == "<|fim_prefix|>def f(<|fim_suffix|>return x<|fim_middle|>"
        error_of(await gateway.complete(prompt=["a", "b"], suffix="x"), 400, param="suffix")
        error_of(await gateway.complete(suffix="x", echo=True), 400, param="suffix")


async def test_a_model_without_the_tokens_refuses(gateway):
    message = error_of(await gateway.complete(suffix="x"), 400, "unsupported_parameter", param="suffix")
    assert "no tokens to fill in" in message
