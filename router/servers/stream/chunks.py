"""Reads the chunks of a streamed answer, and rewrites what the client is to see in them: ids and names of models.

Most chunks of an answer begin with the same bytes, up to their choices. Those are rewritten once, and put in the place
of the old ones in all chunks that follow. What differs is decoded one level deep. Nothing else of a chunk is touched.
"""

from typing import Final

import msgspec

from router.servers.stream.sse import BadStreamError

CHOICES: Final = b'"choices":'
MOST_COUNTED: Final = 2**22  # tokens of one call that a server may have counted
NOTHING: Final = msgspec.Raw(b"null")  # a union of `msgspec.Raw` and None takes no JSON but null


class ServerUsage(msgspec.Struct):
    """Tokens as the server counted them, within reason."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, msgspec.Raw] | None = None

    def __post_init__(self) -> None:
        self.prompt_tokens = _within_reason(self.prompt_tokens)
        self.completion_tokens = _within_reason(self.completion_tokens)

    @property
    def num_cached(self) -> int:
        """Prompt tokens that the server had cached; 0: it does not say."""
        found = (self.prompt_tokens_details or {}).get("cached_tokens")
        try:
            return 0 if found is None else _within_reason(msgspec.json.decode(found, type=int)) or 0
        except msgspec.DecodeError:
            return 0


def _within_reason(counted: int | None) -> int | None:
    return None if counted is None else min(max(0, counted), MOST_COUNTED)


def has_any(value: msgspec.Raw) -> bool:
    """Say whether a field was there, and was not null."""
    return value is not NOTHING and bytes(value) != b"null"


class ChunkDelta(msgspec.Struct):
    content: str | list[msgspec.Raw] | None = None  # a list: parts, as Mistral's reasoning models have them
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw = NOTHING

    @property
    def has_parts(self) -> bool:
        return isinstance(self.content, list)


class ChunkChoice(msgspec.Struct):
    delta: ChunkDelta | None = None
    text: str | None = None
    index: int = 0
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None  # of a completion

    @property
    def said(self) -> str:
        """Return the text of the answer that it adds."""
        content = self.delta.content if self.delta is not None else self.text
        return content if isinstance(content, str) else ""

    @property
    def num_tokens(self) -> int:
        """Count one for a chunk that says anything, if the server does not tell the tokens."""
        if self.token_ids:
            return len(self.token_ids)
        delta = self.delta
        if delta is None:
            return 1 if self.text else 0
        return 1 if delta.content or delta.reasoning_content or delta.reasoning or has_any(delta.tool_calls) else 0

    @property
    def is_plain(self) -> bool:
        """Say whether all that it adds is text."""
        delta = self.delta
        return delta is None or not (
            delta.reasoning_content or delta.reasoning or delta.has_parts or has_any(delta.tool_calls)
        )


class AnswerChunk(msgspec.Struct):
    """What a gateway reads of one."""

    choices: list[ChunkChoice] = []
    usage: ServerUsage | None = None
    error: msgspec.Raw = NOTHING
    prompt_token_ids: list[int] | None = None  # of a chat

    @property
    def prompt_ids(self) -> list[int] | None:
        """Return the tokens of the prompt, if the server tells them with this chunk."""
        return self.prompt_token_ids or (self.choices[0].prompt_token_ids if self.choices else None)


_CHUNKS: Final = msgspec.json.Decoder(AnswerChunk)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_chunk(data: bytes) -> AnswerChunk:
    """Raise `BadStreamError` on what is no chunk."""
    try:
        return _CHUNKS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadStreamError(f"not a chunk of an answer: {str(error)[:100]}") from None


def without_ids(data: bytes) -> bytes:
    """Leave out the token ids, which the gateway asked for. In a string its quotation marks would be escaped."""
    for name in (b'"token_ids":', b'"prompt_token_ids":'):
        begin = data.find(name)
        while begin >= 0:
            end = begin + len(name)
            value = data[end : end + 8].lstrip()
            end = data.index(b"null", end) + 4 if value.startswith(b"null") else data.index(b"]", end) + 1
            data = _cut(data, begin, end)
            begin = data.find(name)
    return data


def _cut(data: bytes, begin: int, end: int) -> bytes:
    """The same without a field, and without the comma before or after it."""
    before = data[:begin].rstrip()
    if before.endswith(b","):
        return before[:-1] + data[end:]
    return data[:begin] + data[end:].lstrip().removeprefix(b",")


class _WithUsage(msgspec.Struct):
    usage: ServerUsage | None = None


def read_usage(body: bytes) -> ServerUsage | None:
    """Return the usage of an answer in one piece; None: it has none that can be read."""
    try:
        return msgspec.json.decode(body, type=_WithUsage).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Rewriter:
    """Gives chunks the ``id`` and the ``model`` that the client knows."""

    __slots__ = ("_fields", "_new", "_old", "_own")

    def __init__(self, answer_id: str | None, model: str) -> None:
        """Make one. Without an ``answer_id`` answers keep the server's."""
        self._own = {"model": _raw(model)} | ({} if answer_id is None else {"id": _raw(answer_id)})
        self._old = b""  # up to the choices
        self._new = b""
        self._fields: dict[str, msgspec.Raw] = {}  # of a chunk that has no such beginning

    @property
    def head(self) -> bytes:
        """Return the beginning of chunks as the client gets them, up to their choices."""
        if self._old:
            return self._new
        kept = {name: value for name, value in self._fields.items() if name not in ("choices", "usage", "timings")}
        return msgspec.json.encode(self._own | kept)[:-1] + b","

    def rewrite(self, data: bytes) -> bytes:
        """Raise `BadStreamError` on what is no object of JSON."""
        if self._old and data.startswith(self._old):
            return self._new + data[len(self._old) :]
        self._learn(data)
        if self._old:
            return self._new + data[len(self._old) :]
        self._fields = self._changed(_fields(data))
        return msgspec.json.encode(self._fields)

    def _learn(self, data: bytes) -> None:
        """Take the head of this chunk for that of the next ones, if all that is rewritten is in it."""
        self._old = b""
        head, found, _ = data.partition(CHOICES)
        if not found:
            return
        try:
            fields = _FIELDS.decode(head + CHOICES + b"0}")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # "choices" is not a key of the object itself
        if fields.keys() >= self._own.keys():
            del fields["choices"]
            self._old, self._new = head, msgspec.json.encode(self._changed(fields))[:-1] + b","

    def _changed(self, fields: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
        return {**fields, **{name: value for name, value in self._own.items() if name in fields}}


def _fields(data: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _FIELDS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadStreamError(f"not an object of JSON: {str(error)[:100]}") from None


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(text))
