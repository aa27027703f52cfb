"""Whatever JSON comes, a body is read or refused with 400, and nothing else happens."""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.api.errors import ApiError
from router.api.messages.bodies import CountBody, MessagesBody
from router.api.messages.translation import chat_of_messages
from router.api.openai.input import parsing
from router.api.openai.input.bodies import Body, ChatBody, CompletionBody, DetokenizeBody, SamplingBody, TokenizeBody
from router.api.openai.input.grammars import grammar_of
from router.api.openai.input.parsing import parse_body
from router.api.openai.input.prompts import _items
from router.api.openai.input.sampling import check_chat, check_completion
from router.api.responses.bodies import ResponsesBody
from router.api.responses.translation import chat_of_response, check_response, items_of
from tests.seeds import seeds

KINDS: tuple[type[Body], ...] = (
    CompletionBody,
    ChatBody,
    TokenizeBody,
    DetokenizeBody,
    CountBody,
    MessagesBody,
    ResponsesBody,
)
EDGES = st.sampled_from(
    [0, -0.0, 5e-324, 1e-40, 1e308, 2**31, 2**63, -(2**63) - 1, 10**40, 0.5, "", "\x00", "é", None, True]
)
SCALARS = EDGES | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8) | st.booleans()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "schema", "1", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = sorted({field for kind in KINDS for field in kind.__struct_encode_fields__})
RIGHT = {"prompt": "hi", "messages": [{"role": "user", "content": "hi"}], "tokens": [1], "input": "hi", "max_tokens": 9}
COUNT = len(seeds(25))


def read(data: bytes, kind: type[Body]) -> object:
    """Everything that happens to a body before a model is looked for: what it holds, or what is wrong with it."""
    try:
        body = parse_body(data, kind)
        if isinstance(body, CompletionBody):
            _items(body.prompt)
            check_completion(body)
        if isinstance(body, CountBody):
            body = chat_of_messages(body)
        if isinstance(body, ResponsesBody):
            check_response(body)
            body = chat_of_response(body, (), items_of(body))
        if isinstance(body, ChatBody):
            check_chat(body)
        if isinstance(body, SamplingBody):
            grammar_of(body)
    except ApiError as error:
        return refusal(error)
    return str(msgspec.json.encode(body))


def refusal(error: ApiError) -> tuple[str | None, str | None]:
    assert error.status == 400
    assert len(error.message) < 1000
    error.body()
    return error.param, error.code


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=COUNT, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4), without=st.sampled_from([None, *RIGHT]))
def test_near_right_bodies(monkeypatch, kind, fields, without):
    right = {name: value for name, value in RIGHT.items() if name != without}
    for large in (0, 1 << 30):
        monkeypatch.setattr(parsing, "LARGE_BODY", large)
        read(json.dumps(right | fields).encode(), kind)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=COUNT)
@given(data=st.binary(max_size=64), at=st.integers(0, 60), tail=st.booleans())
def test_bytes_that_replace_some_of_a_right_body(kind, data, at, tail):
    right = json.dumps(RIGHT).encode()
    read(right[:at] + data + (right[at + len(data) :] if tail else b""), kind)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=COUNT)
@given(value=VALUES)
def test_large_and_small_bodies_are_read_alike(kind, value):
    """Of each field, alone and behind blanks that make the body a large one."""
    for name in kind.__struct_encode_fields__:
        data = json.dumps(RIGHT | {name: value}).encode()
        assert read(data, kind) == read(data + b" " * parsing.LARGE_BODY, kind)
