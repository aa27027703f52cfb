"""Fields that would change an answer and are not supported are refused by name, unless they ask for what happens."""

import msgspec
import pytest

from router.api.errors import ApiError
from router.api.openai.input.bodies import ChatBody
from router.api.openai.input.unsupported import NAMES, check_supported, unsupported


def body(**fields: object) -> ChatBody:
    asked = {"messages": [{"role": "user", "content": "hi"}], **fields}
    return msgspec.json.decode(msgspec.json.encode(asked), type=ChatBody)


@pytest.mark.parametrize(
    "field",
    [
        {},
        {"function_call": "none"},
        {"functions": []},
        {"length_penalty": 1},
        {"modalities": ["text"]},
        {"skip_special_tokens": True},
        {"use_beam_search": False},
        {"use_beam_search": 0},
        *({name: None} for name in NAMES),
    ],
    ids=str,
)
def test_what_asks_for_what_happens_anyway_is_taken(field: dict[str, object]):
    check_supported(body(**field))


@pytest.mark.parametrize(
    "field",
    [
        {"function_call": "auto"},
        {"functions": [{}]},
        {"length_penalty": True},
        {"length_penalty": 1.1},
        {"use_beam_search": True},
        {"skip_special_tokens": False},
        {"modalities": ["text", "audio"]},
        {"modalities": ["text"] * 40},
        {"bad_words": []},
    ],
    ids=str,
)
def test_everything_else_is_refused_by_name(field: dict[str, object]):
    [name] = field
    with pytest.raises(ApiError) as error:
        check_supported(body(**field))
    assert (error.value.status, error.value.param, error.value.code) == (400, name, "unsupported_parameter")


def test_who_uses_an_older_name_is_told_the_newer_one():
    assert "use tool_choice" in unsupported("function_call").message
    assert "use structured_outputs.json" in unsupported("guided_json").message
    assert unsupported("audio").message.endswith("is not supported")
    assert unsupported("functions", "chats alone have it").message.endswith("chats alone have it")
