"""Reads of a body what a gateway has to know of it, and leaves all else as it came: the server judges it."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from router.api.errors import ApiError, bad_parameter
from router.api.forward.pseudo_tokens import pseudo_tokens
from router.api.forward.tokenizing import PromptTokenizer
from router.api.openai.input.bodies import MAX_CHOICES, MAX_COUNT, Name
from router.servers.forwarded_call import CHAT, COMPLETIONS, AnswerForm, CallBody, Headers

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
TEXTS: Final = ("messages", "prompt", "input", "query", "documents", "text_1", "text_2", "queries", "system")
EVENT_PATHS: Final = ("/v1/responses", "/v1/messages")  # whose streams are events of their own
WHOLE_PATHS: Final = (
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
)
PATHS: Final = (CHAT, COMPLETIONS, *EVENT_PATHS, *WHOLE_PATHS)


class StreamWishes(Struct):
    include_usage: bool | None = None


class AskedFields(Struct):
    """What is read of any body."""

    model: Name | None = None
    stream: bool | None = None
    stream_options: StreamWishes | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    max_output_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    return_token_ids: bool | None = None
    temperature: float | None = None
    seed: int | None = None

    @property
    def most_tokens(self) -> int | None:
        """Return how many tokens one answer may have, if the client says so."""
        for asked in (self.max_completion_tokens, self.max_tokens, self.max_output_tokens):
            if asked is not None:
                return asked
        return None


class _Part(Struct):
    text: str | None = None


class _Message(Struct):
    content: str | list[_Part] | None = None


class AskedCall(Struct, frozen=True):
    """A body that was read. ``prompt``: numbers for its text (`router.api.forward.pseudo_tokens`)."""

    body: CallBody
    asked: AskedFields
    prompt: list[int]
    is_estimated: bool
    num_choices: int


_ASKED: Final = msgspec.json.Decoder(AskedFields)
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])
_MESSAGES: Final = msgspec.json.Decoder(list[_Message])
_TEXT: Final = msgspec.json.Decoder(str)
_PROMPTS: Final = msgspec.json.Decoder(list[Raw])


def read_asked(data: bytes) -> AskedFields:
    """Raise `ApiError` (400) if it is no object of JSON, or what is read of it is not as it should be."""
    try:
        return _ASKED.decode(data)
    except msgspec.ValidationError as error:
        says, at, place = str(error).rpartition(" - at ")
        name = place.strip("`").removeprefix("$").strip(".")
        if not at or not name:
            raise ApiError(400, "The body must be a JSON object", code="invalid_json") from None
        raise bad_parameter(name, says[:200]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"The body is not valid JSON: {str(error)[:200]}", code="invalid_json") from None


def call_of(
    path: str, data: bytes, asked: AskedFields, headers: Headers, tokenizer: PromptTokenizer | None = None
) -> AskedCall:
    """``data`` was read by `read_asked` before. Without a ``tokenizer``, its prompt is estimated."""
    fields = _FIELDS.decode(data)
    wishes = asked.stream_options
    body = CallBody(
        path,
        fields,
        _form(path, asked),
        wants_usage=wishes is not None and bool(wishes.include_usage),
        wants_token_ids=bool(asked.return_token_ids),
        headers=headers,
    )
    prompt = None if tokenizer is None else tokenizer.prompt(path, fields)
    numbers = prompt or pseudo_tokens(b"\n".join(_texts(fields)))
    return AskedCall(body, asked, numbers, prompt is None, (asked.n or 1) * _num_prompts(body))


def _num_prompts(body: CallBody) -> int:
    """Completions may have several, each with an answer of its own. What is no list of prompts the server judges."""
    data = bytes(body.fields.get("prompt", b"")) if body.path == COMPLETIONS else b""
    if not data.startswith(b"[") or not data[1:].lstrip().startswith((b'"', b"[")):
        return 1
    return len(_PROMPTS.decode(data))


def _form(path: str, asked: AskedFields) -> AnswerForm:
    if not asked.stream or path in WHOLE_PATHS:
        return AnswerForm.WHOLE
    return AnswerForm.EVENTS if path in EVENT_PATHS else AnswerForm.CHUNKS


def _texts(fields: dict[str, Raw]) -> Iterator[bytes]:
    """Return what prompts are made of, in an order that equal ones share."""
    if "tools" in fields:
        yield bytes(fields["tools"])
    for name in TEXTS:
        if name in fields:
            yield from _text(name, fields[name])


def _text(name: str, raw: Raw) -> Iterator[bytes]:
    """Of messages their texts alone: images are long, and no text. What cannot be read counts as it is written."""
    data = bytes(raw)
    try:
        if data.startswith(b'"'):
            yield _TEXT.decode(data).encode()
        elif name in ("messages", "input") and data.startswith(b"["):
            for message in _MESSAGES.decode(data):
                yield from _said(message.content)
        else:
            yield data
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        yield data


def _said(content: str | Sequence[_Part] | None) -> Iterator[bytes]:
    if isinstance(content, str):
        yield content.encode(errors="replace")
    else:
        for part in content or ():
            yield (part.text or "").encode(errors="replace")
