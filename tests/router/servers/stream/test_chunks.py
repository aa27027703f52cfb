"""Chunks get our names, and nothing else of them changes."""

import json

import pytest

from router.servers.stream.chunks import Rewriter, read_chunk, read_usage
from router.servers.stream.sse import BadStreamError

CHUNK = {"id": "x", "object": "o", "created": 1, "model": "m", "choices": [{"delta": {"content": "a"}, "more": [1]}]}


def encode(chunk, *, compact=True):
    return json.dumps(chunk, separators=(",", ":") if compact else None).encode()


def llama(chunk):
    """The same with its choices first."""
    return {"choices": chunk["choices"], **chunk}


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("form", [dict, llama])
def test_ids_and_models_are_ours_and_all_else_is_theirs(compact, form):
    rewriter = Rewriter("ours", 'chat "1"')
    tricky = {**CHUNK, "choices": [{"delta": {"content": '"choices": "id":"x"'}}]}
    tail = {"id": "y", "model": "n", "choices": [], "usage": {"completion_tokens": 1}}
    for chunk in (CHUNK, CHUNK, tricky, tail, CHUNK):
        found = json.loads(rewriter.rewrite(encode(form(chunk), compact=compact)))
        assert found == {**form(chunk), "id": "ours", "model": 'chat "1"'}


def test_what_has_no_names_gets_none_and_ids_may_stay():
    assert json.loads(Rewriter("ours", "chat").rewrite(b'{"data":[1]}')) == {"data": [1]}
    assert json.loads(Rewriter(None, "chat").rewrite(encode(CHUNK))) == {**CHUNK, "model": "chat"}
    nested = {"a": {"choices": 1}, "id": "x", "model": "m"}
    assert json.loads(Rewriter("ours", "chat").rewrite(encode(nested))) == {**nested, "id": "ours", "model": "chat"}


@pytest.mark.parametrize("data", [b"", b"[1]", b"{", b'"text"', b"\xff", b"[" * 100_000])
def test_what_is_no_chunk_is_said_to_be_none(data):
    with pytest.raises(BadStreamError):
        Rewriter("ours", "chat").rewrite(data)
    with pytest.raises(BadStreamError):
        read_chunk(data)
    assert read_usage(data) is None


def test_tokens_are_those_that_the_server_tells_or_one_for_what_says_anything():
    def count(**choice):
        return read_chunk(encode({"choices": [choice]})).choices[0].num_tokens

    assert count(token_ids=[1, 2]) == 2
    assert [count(text=text) for text in ("", "a")] == [0, 1]
    assert [count(delta=delta) for delta in ({"role": "assistant"}, {"content": "a"}, {"tool_calls": []})] == [0, 1, 1]
    assert count(delta={"content": [{"type": "text", "text": "a"}]}) == 1
    usage = read_chunk(encode({"usage": {"completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}}})).usage
    assert (usage.completion_tokens, usage.num_cached) == (5, 3)
