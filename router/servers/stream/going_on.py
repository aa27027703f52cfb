"""Goes on with an answer whose stream broke off: what another server is asked, and how its chunks join those before.

There are four ways. The first that fits is taken, and the client is told which it was. Token ids give the same answer
as if nothing had happened, where decoding is greedy. Text may be cut into other tokens than it was made of. Where a
server can do neither, the answer is made anew: what the client has already is left out, as long as it is the same.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

import msgspec

from router.servers.facts import ServerFacts, ServerKind
from router.servers.forwarded_call import CHAT, COMPLETIONS, AnswerForm, CallBody, ForwardedCall
from router.servers.stream.chunks import AnswerChunk
from router.servers.stream.sse import BadStreamError

SPECIAL: Final = (  # what an answer keeps to, or tells beside its text, from its first token on
    "tools", "functions", "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "logprobs", "top_logprobs", "prompt_logprobs", "echo", "suffix", "best_of", "regex",
    "json_schema", "ebnf", "grammar", "use_beam_search",
)  # fmt: skip
OFF: Final = (b"null", b"false", b"[]", b"{}", b"1", b'{"type":"text"}')
PENALTIES: Final = ("frequency_penalty", "presence_penalty")  # which count the tokens of the answer alone
ZERO: Final = (b"0", b"0.0", b"-0.0", b"null")
LIMITS: Final = ("max_tokens", "max_completion_tokens")
OF_CHATS: Final = ("messages", "max_completion_tokens", "add_generation_prompt", "continue_final_message")
UNKNOWN_ROOM: Final = 4096  # tokens of an answer, where nobody says how many a server takes
DEFAULT_COMPLETION: Final = 16  # tokens of /v1/completions, as OpenAI, vLLM and SGLang have it
NO_WAY: Final = "the stream broke off, and no other server can go on with this answer"
ANOTHER: Final = f"{NO_WAY}: made anew, it is another one"


class SeamKind(StrEnum):
    """How an answer went on elsewhere."""

    IDS = "ids"  # with the ids of the prompt and of all tokens so far
    TEXT = "text"  # with the prompt and the text so far
    MESSAGE = "message"  # with the text so far as the beginning of the last message
    REPLAY = "replay"  # from its start


class NoWayError(Exception):
    """Nobody can go on with an answer. The text is for the client."""


def way_of(call: ForwardedCall, facts: ServerFacts) -> SeamKind:
    """Choose how a server goes on with an answer that has begun. Raise `NoWayError` if it cannot."""
    said, body = call.said, call.body
    if body.form is not AnswerForm.CHUNKS or call.num_choices > 1:
        raise NoWayError(NO_WAY)
    is_special = any(is_on(body.fields, name) for name in SPECIAL) or not said.is_plain or _is_penalised(body.fields)
    if not said.can_be_compared:
        raise NoWayError(NO_WAY)
    if is_special:
        return SeamKind.REPLAY
    has_ids = said.prompt_ids and len(said.token_ids) == call.num_tokens
    if has_ids and facts.takes_token_ids and not is_on(body.fields, "stop"):
        return SeamKind.IDS
    if body.path == COMPLETIONS and bytes(body.fields.get("prompt", b"")).startswith(b'"'):
        return SeamKind.TEXT
    if body.path == CHAT and facts.continues_messages and not is_on(body.fields, "continue_final_message"):
        return SeamKind.MESSAGE
    return SeamKind.REPLAY


def body_to_go_on(call: ForwardedCall, way: SeamKind, facts: ServerFacts) -> CallBody:
    """Return what is asked for, in the place of what the client asked for. ``facts``: of the server that goes on."""
    body, said = call.body, call.said
    fields = dict(body.fields)
    if way is SeamKind.REPLAY:
        return body
    for name in LIMITS:
        if is_on(fields, name):
            fields[name] = _encode(max(1, msgspec.json.decode(fields[name], type=int) - call.num_tokens))
    with suppress(msgspec.DecodeError, KeyError):
        fields["min_tokens"] = _encode(max(0, msgspec.json.decode(fields["min_tokens"], type=int) - call.num_tokens))
    if body.path == COMPLETIONS and not any(bytes(fields.get(name, b"null")) != b"null" for name in LIMITS):
        fields |= _rest_of_default(call, facts)
    if way is SeamKind.MESSAGE:
        fields["messages"] = _with_message(fields["messages"], said.text)
        fields |= {"add_generation_prompt": _encode(False), "continue_final_message": _encode(True)}
        return replace(body, fields=fields)
    if way is SeamKind.TEXT:
        prompt = msgspec.json.decode(fields["prompt"], type=str)
        fields["prompt"] = _encode(prompt + said.text)
        return replace(body, fields=fields)
    limit = fields.get("max_completion_tokens", fields.get("max_tokens"))
    fields = {name: value for name, value in fields.items() if name not in OF_CHATS}
    fields["prompt"] = _encode([*said.prompt_ids, *said.token_ids])
    if limit is not None:
        fields["max_tokens"] = limit
    elif body.path == CHAT:
        fields["max_tokens"] = _encode(_room(call))
    return replace(body, path=COMPLETIONS, fields=fields)


def _rest_of_default(call: ForwardedCall, facts: ServerFacts) -> dict[str, msgspec.Raw]:
    """The limit of a completion without one of its own, whose default would begin anew."""
    if facts.kind is ServerKind.LLAMA_CPP or call.num_tokens >= DEFAULT_COMPLETION:
        return {}
    return {"max_tokens": _encode(DEFAULT_COMPLETION - call.num_tokens)}


def _room(call: ForwardedCall) -> int:
    """Tokens of the rest of a chat that has no limit of its own: of completions, servers would say only a few."""
    if call.max_context is None:
        return max(1, min(call.bound, UNKNOWN_ROOM) - call.num_tokens)
    return max(1, min(call.bound - call.num_tokens, call.max_context - len(call.said.prompt_ids) - call.num_tokens))


def is_on(fields: Mapping[str, msgspec.Raw], name: str) -> bool:
    return name in fields and bytes(fields[name]).replace(b" ", b"") not in OFF


def _is_penalised(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Say whether an answer that would always be the same is another one where its beginning counts as prompt."""
    is_greedy = bytes(fields.get("temperature", b"")) in ZERO[:-1]
    return is_greedy and any(name in fields and bytes(fields[name]) not in ZERO for name in PENALTIES)


def _with_message(messages: msgspec.Raw, text: str) -> msgspec.Raw:
    known = msgspec.json.decode(messages, type=list[msgspec.Raw])
    return _encode([*known, {"role": "assistant", "content": text}])


def _encode(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


class Joint:
    """Makes the chunks of the server that goes on follow those of the one before."""

    def __init__(self, call: ForwardedCall, way: SeamKind) -> None:
        self._way = way
        self._is_chat = call.body.path == CHAT
        self._head = call.rewriter.head
        self._has_begun = False
        self._skipped = call.said.text if way is SeamKind.REPLAY else ""
        self._num_reasoned = len(call.said.reasoning) if way is SeamKind.REPLAY else 0
        self._reasoning = call.said.reasoning
        if way is SeamKind.REPLAY:
            call.said.prompt_ids = []  # its tokens may be cut otherwise

    @property
    def is_from_start(self) -> bool:
        """Say whether the server counts what came before, too."""
        return self._way is SeamKind.REPLAY

    def join(self, chunk: AnswerChunk, data: bytes) -> bytes | None:
        """Return the chunk as the client gets it; None: it has that already. Raise `NoWayError` if it is another."""
        if self._way is SeamKind.IDS and self._is_chat:
            return self._as_chat(chunk, data)
        if self._way is SeamKind.REPLAY:
            return self._beyond(chunk, data)
        if self._way is SeamKind.MESSAGE and not self._has_begun:
            self._has_begun = any(choice.said or choice.finish_reason for choice in chunk.choices)
            return data if self._has_begun or not chunk.choices else None
        return data

    def _as_chat(self, chunk: AnswerChunk, data: bytes) -> bytes:
        """A chunk of a completion as one of a chat."""
        if not chunk.choices:
            usage = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("usage")
            return self._head + b'"choices":[],"usage":' + (b"null" if usage is None else bytes(usage)) + b"}"
        [choice, *_] = chunk.choices
        said = {"index": 0, "delta": {"content": choice.said}, "logprobs": None, "finish_reason": choice.finish_reason}
        return self._head + b'"choices":[' + msgspec.json.encode(said) + b"]}"

    def _beyond(self, chunk: AnswerChunk, data: bytes) -> bytes | None:
        """What an answer made anew says beyond what was said."""
        if not (self._skipped or self._num_reasoned):
            return data
        for choice in chunk.choices:
            delta = choice.delta
            reasoned = (delta.reasoning_content or delta.reasoning or "") if delta is not None else ""
            if reasoned:
                return self._reasoned(reasoned, data)
            said, kept = choice.said, self._skipped
            if (choice.finish_reason and len(said) < len(kept)) or not _agree(said, kept):
                raise NoWayError(ANOTHER)
            self._skipped = kept[len(said) :]
            if len(said) > len(kept) or choice.finish_reason:
                return _with_text(data, said[len(kept) :])
        return None

    def _reasoned(self, reasoned: str, data: bytes) -> bytes | None:
        kept = self._reasoning[len(self._reasoning) - self._num_reasoned :]
        if not kept or not _agree(reasoned, kept):
            raise NoWayError(ANOTHER)
        self._num_reasoned = max(0, self._num_reasoned - len(reasoned))
        return _with_text(data, reasoned[len(kept) :]) if len(reasoned) > len(kept) else None


def _agree(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _with_text(data: bytes, text: str) -> bytes:
    """The same chunk with less text."""
    chunk = msgspec.json.decode(data)
    for choice in chunk["choices"]:
        holder = choice.get("delta", choice)
        for name in ("content", "text", "reasoning_content", "reasoning"):
            if isinstance(holder.get(name), str) and holder[name]:
                holder[name] = text
    return msgspec.json.encode(chunk)


def last_chunk(call: ForwardedCall) -> bytes:
    """Return what ends an answer that has as many tokens as it may have, where its server cannot say it any more."""
    said: dict[str, Any] = {"delta": {}} if call.body.path == CHAT else {"text": ""}
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": "length"}
    ended = call.rewriter.head + b'"choices":[' + msgspec.json.encode(choice) + b"]}"
    return with_seams(ended, call.seams) if call.seams else ended


def with_seams(data: bytes, seams: list[dict[str, Any]]) -> bytes:
    """Tell the client, in the chunk that ends its answer."""
    if not data.endswith(b"}"):
        raise BadStreamError("not an object of JSON")
    return data[:-1] + b',"meshserve":' + msgspec.json.encode({"seams": seams}) + b"}"


def with_usage(data: bytes, num_before: int, prompt_tokens: int | None) -> bytes:
    """Count what came before the seam as answer, and not as prompt."""
    chunk = msgspec.json.decode(data)
    usage = chunk.get("usage")
    if not isinstance(usage, dict):
        return data
    completion = int(usage.get("completion_tokens") or 0) + num_before
    prompt = max(0, int(usage.get("prompt_tokens") or 0) - num_before) if prompt_tokens is None else prompt_tokens
    usage |= {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return msgspec.json.encode(chunk)
