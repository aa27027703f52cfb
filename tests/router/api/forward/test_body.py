"""What a gateway reads of a body that it passes on."""

import msgspec
import pytest

from router.api.errors import ApiError
from router.api.forward.body import call_of, read_asked
from router.api.forward.pseudo_tokens import MOST, pseudo_tokens
from router.servers.forwarded_call import CHAT, AnswerForm


def read(path=CHAT, **body):
    data = msgspec.json.encode(body)
    return call_of(path, data, read_asked(data), ())


def test_one_number_stands_for_four_bytes_and_equal_beginnings_are_equal():
    assert len(pseudo_tokens(b"")) == 1
    assert [len(pseudo_tokens(b"x" * size)) for size in (1, 4, 5)] == [1, 1, 2]
    first, second = pseudo_tokens(b"the same beginning"), pseudo_tokens(b"the same beginning, and more")
    assert first[:4] == second[:4]
    assert len(pseudo_tokens(b"x" * 4 * (MOST + 5))) == MOST
    assert all(0 <= number < 2**32 for number in pseudo_tokens(bytes(range(256))))


def test_the_texts_of_messages_are_the_prompt_and_images_are_not():
    image = {"type": "image_url", "image_url": {"url": "data:" + "x" * 4000}}
    chat = read(messages=[{"role": "user", "content": [{"type": "text", "text": "a" * 40}, image]}])
    assert len(chat.prompt) == pytest.approx(10, abs=1)
    assert len(read("/v1/completions", prompt="a" * 40).prompt) == 10
    assert len(read("/v1/embeddings", input=["a" * 20, "b" * 20]).prompt) == pytest.approx(12, abs=1)


def test_what_is_asked_for_and_how_it_comes():
    call = read(stream=True, stream_options={"include_usage": True}, max_tokens=5, return_token_ids=True, extra=[1])
    assert (call.body.form, call.body.wants_usage, call.body.wants_token_ids) == (AnswerForm.CHUNKS, True, True)
    assert bytes(call.body.fields["extra"]) == b"[1]"
    assert call.asked.most_tokens == 5
    assert read(max_completion_tokens=7, max_tokens=5).asked.most_tokens == 7
    assert read("/v1/responses", stream=True).body.form is AnswerForm.EVENTS
    assert read("/v1/embeddings", stream=True).body.form is read().body.form is AnswerForm.WHOLE


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"model": 1}', "model: "),
        (b'{"max_tokens": -1}', "max_tokens: "),
        (b'{"n": 1000}', "n: "),
        (b'{"stream_options": {"include_usage": 3}}', "stream_options.include_usage: "),
        (b'{"a": ' + b"[" * 100_000, "not valid JSON"),
        (b'{"model": "\xff"}', "not valid JSON"),
    ],
)
def test_what_cannot_be_read_is_refused(data, message):
    with pytest.raises(ApiError, match=message) as caught:
        read_asked(data)
    assert caught.value.status == 400
