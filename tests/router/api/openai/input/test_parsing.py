"""Bodies that hold too much, or what nobody means, are refused without being read to their end."""

import gc
import json
import time

import pytest

from router.api.errors import ApiError
from router.api.openai.input.bodies import Body, ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from router.api.openai.input.bounds import MAX_STRINGS, MAX_TOKEN_IDS
from router.api.openai.input.parsing import LARGE_BODY, parse_body

MIB_4 = 4 << 20


def filled(head: bytes, unit: bytes, tail: bytes, size: int = MIB_4) -> bytes:
    """A body of about ``size`` bytes; the last unit loses its comma."""
    return head + (unit * ((size - len(head) - len(tail)) // len(unit))).rstrip(b",") + tail


PROMPT = b'{"prompt":['
CHAT = b'{"messages":['
HI = b'"messages":[{"role":"user","content":"hi"}]}'
HUGE = {
    "objects as prompts": (CompletionBody, filled(PROMPT, b"{},", b"]}"), "prompt"),
    "empty prompts": (CompletionBody, filled(PROMPT, b"[],", b"]}"), "prompt"),
    "nested prompts": (CompletionBody, filled(PROMPT, b"[[]],", b"]}"), "prompt"),
    "empty texts": (CompletionBody, filled(PROMPT, b'"",', b"]}"), "prompt"),
    "texts that end with a backslash": (CompletionBody, filled(PROMPT, b'"\\\\",', b"]}"), "prompt"),
    "a text, then lists": (CompletionBody, filled(PROMPT + b'"",', b"[],", b"]}"), "prompt"),
    "a blank, then lists": (CompletionBody, filled(PROMPT + b" " * 80, b"[],", b"]}"), "prompt"),
    "token ids": (CompletionBody, filled(PROMPT, b"1,", b"]}"), "prompt"),
    "one huge token id": (CompletionBody, filled(PROMPT, b"1", b"]}"), "prompt"),
    "one long fraction": (CompletionBody, filled(PROMPT + b"1.", b"1", b"]}"), "prompt"),
    "token ids to detokenise": (DetokenizeBody, filled(b'{"tokens":[', b"1,", b"]}"), "tokens"),
    "bad messages": (ChatBody, filled(CHAT, b"{},", b"]}"), "messages[0].role"),
    "empty messages": (ChatBody, filled(CHAT, b'{"role":"user"},', b"]}"), "messages"),
    "messages with escaped keys": (ChatBody, filled(CHAT, b'{"r\\u006fle":"user"},', b"]}"), "messages"),
    "parts": (
        ChatBody,
        filled(b'{"messages":[{"role":"user","content":[', b'{"type":"text","text":""},', b"]}]}"),
        "messages",
    ),
    "messages to tokenise": (TokenizeBody, filled(CHAT, b'{"role":"user"},', b"]}"), "messages"),
    "biases": (ChatBody, filled(b'{"logit_bias":{', b'"a":1,', b"}," + HI), "logit_bias"),
    "the same bias": (ChatBody, filled(b'{"logit_bias":{', b'"1":1,', b"}," + HI), "logit_bias"),
    "one long bias": (ChatBody, filled(b'{"logit_bias":{"', b"1", b'":1},' + HI), "logit_bias"),
    "stop tokens": (ChatBody, filled(b'{"stop_token_ids":[', b"1,", b"]," + HI), "stop_token_ids"),
    "stop strings": (ChatBody, filled(b'{"stop":[', b'"a",', b"]," + HI), "stop"),
    "tools": (ChatBody, filled(b'{"tools":[', b"{},", b"]," + HI), "tools"),
    "choices": (ChatBody, filled(b'{"structured_outputs":{"choice":[', b'"a",', b"]}," + HI), "structured_outputs"),
    "a schema of lists": (
        ChatBody,
        filled(b'{"response_format":{"type":"json_schema","json_schema":{"schema":{"a":[', b"[],", b"]}}}," + HI),
        "response_format",
    ),
}


def refused(kind: type[Body], data: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_body(data, kind)
    assert caught.value.status == 400
    assert len(caught.value.message) < 500
    return caught.value


@pytest.mark.parametrize("name", HUGE)
def test_what_is_too_much_is_refused_without_making_objects_of_it(name):
    kind, data, param = HUGE[name]
    gc.freeze()  # what is there is not counted: to look at all that a run of all tests has takes a second
    seconds = time.process_time()
    assert refused(kind, data).param == param
    assert time.process_time() - seconds < 0.5  # seconds to half a minute, when each element was looked at
    assert len(gc.get_objects()) < 10_000


def test_ignored_fields_cost_nothing():
    for junk in (b"1,", b"[],", b'{"a":[]},', b'"x",', b"null,"):
        body = parse_body(filled(b'{"prompt":"hi","junk":[', junk, b"]}"), CompletionBody)
        assert body.prompt == "hi"


def test_of_a_part_that_comes_twice_only_the_last_is_read():
    data = b'{"prompt":[' + b"[]," * 1_000_000 + b'[]],"prompt":"hi"}'
    assert parse_body(data, CompletionBody).prompt == "hi"


@pytest.mark.parametrize(
    "text",
    ['{"prompt":"\\ud800"}', '{"prompt":"\\udc00\\ud800"}', '{"prompt":"\\ud800\\u0041"}', '{"prompt":["\\ud8',
     '{"prompt":NaN}', '{"prompt":"a"} x', '{"prompt":"a",}', "{'prompt':1}", '{"a":' + "[" * 100_000,
     '{"prompt":' + '{"a":' * 50_000,
     '{"prompt":"\x01"}'],
)  # fmt: skip
@pytest.mark.parametrize("padding", [0, LARGE_BODY])
def test_what_is_not_json(text, padding):
    error = refused(CompletionBody, b" " * padding + text.encode())
    assert error.code == "invalid_json"


def test_bytes_that_are_not_utf8():
    for padding in (0, LARGE_BODY):
        assert refused(CompletionBody, b" " * padding + b'{"prompt":"\xff"}').code == "invalid_json"


@pytest.mark.parametrize("padding", [0, LARGE_BODY])
@pytest.mark.parametrize(
    ("field", "says"),
    [
        ('"temperature": 3', "temperature: must be at most 2"),
        ('"temperature": "hot"', "temperature: must be a number, not a string"),
        ('"temperature": 1e400', "temperature: Number out of range"),
        ('"n": 1.5', "n: must be an integer, not a number"),
        ('"n": true', "n: must be an integer, not true or false"),
        ('"n": 0', "n: must be at least 1"),
        ('"max_tokens": 9223372036854775808', "max_tokens: must be at most 2147483647"),
        ('"seed": -9223372036854775809', "seed: must be at least -9223372036854775808"),
        ('"repetition_penalty": 1e-40', "repetition_penalty: must be at least 0.01"),
        ('"stream": 1', "stream: must be true or false, not an integer"),
        ('"stop": ["a", 1]', "stop: must be a string or a list of strings"),
        ('"stop_token_ids": [1, -1]', "stop_token_ids[1]: must be at least 0"),
        ('"logit_bias": {"1": 1e3}', "logit_bias: must be at most 100"),
        ('"logit_bias": {"1_0": 1}', "logit_bias: must be an object with biases by token id"),
        ('"logit_bias": {"٣": 1}', "logit_bias: must be an object with biases by token id"),
        ('"stream_options": {"include_usage": 1}',
         "stream_options.include_usage: must be true or false, not an integer"),
        ('"response_format": {}', "response_format.type: is required"),
        ('"model": "' + "x" * 300 + '"', "model: must have at most 256 characters"),
        ('"messages": [{"role": "clown"}]', "messages[0].role: must be system, developer, user, assistant or tool"),
        ('"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]',
         "messages[0].content[0].text: must be a string, not an integer"),
        ('"messages": []', "messages: must not be empty"),
        ('"messages": null', "messages: must be a list, not null"),
    ],
)  # fmt: skip
def test_says_what_and_where_in_small_and_large_bodies_alike(padding, field, says):
    message = "" if "messages" in field else '"messages": [{"role": "user", "content": "hi"}], '
    data = f"{{{message}{' ' * padding}{field}}}"
    assert refused(ChatBody, data.encode()).message == says


def test_a_missing_field_is_named():
    for padding in (b"", b" " * LARGE_BODY):
        error = refused(ChatBody, padding + b"{}")
        assert (error.param, error.code) == ("messages", "missing_required_parameter")


def test_large_bodies_that_are_right_are_read_whole():
    ids = list(range(MAX_TOKEN_IDS - 1))
    assert parse_body(f'{{"prompt":{ids}}}'.encode(), CompletionBody).prompt == ids
    texts = ['"quoted" and \\ slashed, [with] {marks}\\'] * 128
    assert parse_body(f'{{"prompt":{json.dumps(texts)}}}'.encode(), CompletionBody).prompt == texts
    code = 'print("a, b", {"c": [1]})\n' * 20_000
    messages = [{"role": "user", "content": code}, {"role": "assistant", "content": [{"type": "text", "text": code}]}]
    body = parse_body(f'{{"messages":{json.dumps(messages)},"max_tokens":5}}'.encode(), ChatBody)
    assert (body.messages[0].content, body.max_tokens) == (code, 5)
    many = [{"role": "user", "content": "x"}] * 4096
    assert len(parse_body(f'{{"messages":{json.dumps(many)}}}'.encode(), ChatBody).messages) == 4096
    assert 4 * len(many) < MAX_STRINGS
