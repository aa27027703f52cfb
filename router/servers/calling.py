"""Makes one call to a server and reads its answer. Whatever comes, the call ends in one of a few ways."""

from math import inf
from typing import Final, Protocol

import msgspec

from mesh.wire.requests import FailureCode, FinishReason
from router.servers.forwarded_call import AnswerForm, CallBody, ForwardedCall, ServerAnswer
from router.servers.stream.chunks import (
    AnswerChunk,
    ChunkChoice,
    ServerUsage,
    has_any,
    read_chunk,
    read_usage,
    without_ids,
)
from router.servers.stream.client import Ongoing
from router.servers.stream.errors import ErrorEvent, message_of, misses_model, status_within
from router.servers.stream.going_on import Joint, NoWayError, is_on, last_chunk, with_seams, with_usage
from router.servers.stream.sse import DONE, BadStreamError, EventReader, data_of

MAX_ANSWER: Final = 32 * 2**20  # bytes, in one piece
MOST_EXTRA: Final = 64  # tokens beyond the bound of an answer, as servers count in their own way
MAX_ERROR: Final = 64 * 2**10  # bytes that are read of an answer which is an error
BUSY: Final = (429, 503)
AGAIN: Final = (408, 425)  # of 4xx: the same request may be answered another time
LAST_EVENTS: Final = (  # of APIs that are not read
    b"message_stop", b"response.completed", b"response.incomplete", b"response.failed", b"event: error",
    b'"type":"error"', b'"type": "error"', DONE,
)  # fmt: skip
COUNTS_USAGE: Final = msgspec.Raw(b'{"include_usage":true}')
TRUE: Final = msgspec.Raw(b"true")
NOT_ANSWERED: Final = frozenset({
    "access-control-allow-credentials", "access-control-allow-origin", "alt-svc", "connection", "content-encoding",
    "content-length", "date", "keep-alive", "proxy-authenticate", "proxy-connection", "server", "set-cookie",
    "strict-transport-security", "te", "trailer", "traceparent", "transfer-encoding", "upgrade", "www-authenticate",
    "x-request-id",
})  # fmt: skip


class CallEnds(Protocol):
    """Is told what comes of a call."""

    def got(self, tokens: list[int], finish: FinishReason | None, num_cached: int) -> bool:
        """Take tokens, or the end. Return whether anybody wants more."""

    def refused(self, reason: str, retry_after_s: float | None) -> None:
        """The server has no room for it now."""

    def lacks_model(self, reason: str) -> None:
        """The server does not know the model."""

    def failed(self, reason: str, code: FailureCode) -> None:
        """The server does not do it."""


def body_for(body: CallBody, model: str, *, with_token_ids: bool) -> bytes:
    """Return what the server is sent: all that the client sent, with the server's own name of the model."""
    fields = {**body.fields, "model": msgspec.Raw(msgspec.json.encode(model))}
    if body.form is AnswerForm.CHUNKS:
        fields["stream_options"] = _with_usage(fields.get("stream_options"))
        if with_token_ids and not is_on(body.fields, "echo"):  # vLLM would leave out the echo's text
            fields["return_token_ids"] = TRUE
    return msgspec.json.encode(fields)


def _with_usage(options: msgspec.Raw | None) -> msgspec.Raw:
    """Ask for the usage at the end, whatever else the client wants of a stream."""
    if options is None or bytes(options) == b"null":
        return COUNTS_USAGE
    try:
        known = msgspec.json.decode(options, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return options  # the server says what is wrong with it
    return msgspec.Raw(msgspec.json.encode({**known, "include_usage": TRUE}))


class Calling:
    """One attempt at a call. It takes what comes (`router.servers.stream.client.Taker`), and ``ends`` hears of it."""

    def __init__(self, call: ForwardedCall, ends: CallEnds, joint: Joint | None = None) -> None:
        """Make one. ``joint``: to what came before it; None: nothing did."""
        self.ongoing: Ongoing | None = None
        self._call = call
        self._ends = ends
        self._joint = joint
        self._num_before = call.num_tokens
        self._num_sent = 0  # tokens that were told of
        self._ended: set[int] = set()  # choices
        self._finish: FinishReason | None = None  # of the last one to end
        self._is_over = False
        self._strips_ids = not call.body.wants_token_ids
        self._status = 0
        self._headers: dict[str, str] = {}
        self._reader: EventReader | None = None  # None: the answer comes whole
        self._pieces: list[bytes] = []
        self._num_bytes = 0

    def stop(self) -> None:
        """Nobody wants it any more."""
        self._is_over = True
        if self.ongoing is not None:
            self.ongoing.stop()

    # --- what comes ---------------------------------------------------------------------------------------------------

    def head(self, status: int, headers: dict[str, str]) -> None:
        self._status, self._headers = status, headers
        coding = headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            self._fail(BadStreamError(f"the answer is compressed ({coding[:32]}), which nobody asked for"))
        elif status == 200 and self._comes_in_events:
            kind = headers.get("content-type", "").lower()
            if kind.startswith("text/event-stream"):
                self._reader = EventReader()
            elif not kind.startswith("application/json"):  # which may say what is wrong
                self._fail(self._no_stream())

    def _no_stream(self) -> BadStreamError:
        return BadStreamError(f"the answer is not a stream of events, but {self._kind}")

    @property
    def _kind(self) -> str:
        """Say what the server says that its answer is, for people."""
        return f"{self._headers.get('content-type', '')[:64]!r}"

    @property
    def _comes_in_events(self) -> bool:
        return self._call.body.form is not AnswerForm.WHOLE

    def data(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            if self._reader is not None:
                self._take(self._reader.feed(data))
            else:
                self._keep(data)
        except (BadStreamError, NoWayError) as error:
            self._fail(error)

    def end(self) -> None:
        if self._is_over:
            return
        try:
            if self._reader is not None:
                self._take(self._reader.end())
                if not self._is_over:
                    self._end_stream()
            else:
                self._end_whole(b"".join(self._pieces))
        except (BadStreamError, NoWayError) as error:
            self._is_over = False
            self._fail(error)

    def broken(self, reason: str) -> None:
        self._fail(BadStreamError(reason))

    def _has_said_all(self) -> bool:
        """Return whether the answer is whole, though the stream broke off. One with as many tokens as were asked for
        lacks its end alone, and no other server is asked for that.
        """
        call = self._call
        is_full = self._reader is not None and call.num_choices == 1 and call.num_tokens >= (call.most_tokens or inf)
        if self._finish is None and is_full and call.body.form is AnswerForm.CHUNKS:
            self._finish = FinishReason.LENGTH
            call.put(b"data: " + last_chunk(call) + b"\n\n", 0)
        return self._finish is not None

    def _fail(self, error: Exception) -> None:
        if self._is_over:
            return
        is_cut = isinstance(error, NoWayError)
        if not is_cut and self._has_said_all():
            self._tell([], self._finish)
        elif isinstance(error, ErrorEvent) and not self._call.has_begun:
            self._headers = {**self._headers, "content-type": "application/json"}
            self._take_error(error.status, error.data)
        else:
            self._ends.failed(str(error), FailureCode.CUT if is_cut else FailureCode.BROKEN)
        self.stop()

    # --- answers in one piece -----------------------------------------------------------------------------------------

    def _end_whole(self, body: bytes) -> None:
        """Raise `BadStreamError` on what is neither an answer nor an error."""
        status = self._status if self._status != 200 else status_within(body)
        self._is_over = True
        if status is not None:
            self._take_error(status, body)
        elif self._comes_in_events:
            raise self._no_stream()
        else:
            self._take_whole(body)

    def _keep(self, data: bytes) -> None:
        """Raise `BadStreamError` if it is longer than may be held. Of an error, the beginning is enough."""
        self._num_bytes += len(data)
        if self._status != 200 and self._num_bytes > MAX_ERROR:
            self._take_error(self._status, b"".join([*self._pieces, data])[:MAX_ERROR])
            self.stop()
        elif self._num_bytes > MAX_ANSWER:
            raise BadStreamError(f"the answer has more than {MAX_ANSWER} bytes")
        else:
            self._pieces.append(data)

    def _take_error(self, status: int, body: bytes) -> None:
        """Refusals of the request are the client's; all else may be otherwise elsewhere."""
        self._is_over = True
        place = self._headers.get("location", "") if status < 400 else ""
        reason = f"HTTP {status}: {f'it redirects to {place[:200]!r}' if place else message_of(body)}"
        if status in BUSY:
            self._ends.refused(reason, _retry_after(self._headers.get("retry-after", "")))
        elif status == 404 and misses_model(body):
            self._ends.lacks_model(reason)
        elif status in (401, 403, 407) or status in AGAIN or status < 400:
            self._ends.failed(reason, FailureCode.BROKEN)
        else:  # a path that one server lacks another one may have
            self._call.answer = ServerAnswer(status, self._passed(), body)
            self._ends.failed(reason, FailureCode.STEP if status == 404 or status >= 500 else FailureCode.INVALID)

    def _take_whole(self, body: bytes) -> None:
        """Raise `BadStreamError` on what is no object of JSON, such as the page of somebody's proxy."""
        try:
            rewritten = self._call.rewriter.rewrite(body)
        except BadStreamError as error:
            raise BadStreamError(f"the answer is {self._kind}: {error}") from None
        usage = self._call.usage = read_usage(body)
        self._call.answer = ServerAnswer(200, self._passed(), rewritten)
        num_tokens = min(1 if usage is None else usage.completion_tokens or 1, self._call.bound + MOST_EXTRA)
        self._call.num_tokens = num_tokens
        self._ends.got([0] * num_tokens, FinishReason.STOP, 0 if usage is None else usage.num_cached)

    def _passed(self) -> list[tuple[str, str]]:
        """The headers of the answer that are the client's."""
        return [(name, value) for name, value in self._headers.items() if name not in NOT_ANSWERED]

    # --- streams ------------------------------------------------------------------------------------------------------

    def _take(self, events: list[bytes]) -> None:
        if self._call.body.form is AnswerForm.CHUNKS:
            self._take_chunks(events)
        else:
            self._take_events(events)

    def _end_stream(self) -> None:
        """The server ended the stream. That is the answer's end only if the server had said so."""
        if self._finish is None:
            raise BadStreamError("the server closed the stream in the middle of the answer")
        self._tell([], self._finish)

    def _take_events(self, events: list[bytes]) -> None:
        """Events of an API that is not read."""
        for event in events:
            if not self._call.has_begun and (status := status_within(data := data_of(event))) is not None:
                raise ErrorEvent(status, data)
            self._call.put(event + b"\n\n", 1)
            if any(name in event for name in LAST_EVENTS):
                self._finish = FinishReason.STOP
        self._tell([0] * len(events), None)

    def _take_chunks(self, events: list[bytes]) -> None:
        """Take what came at once together."""
        tokens: list[int] = []
        finish: FinishReason | None = None
        try:
            for event in events:
                data = data_of(event)
                if data == DONE:
                    finish = self._finish or FinishReason.STOP
                    break
                if data:
                    self._take_chunk(read_chunk(data), data, tokens)
        finally:  # what came before a bad one is the client's
            self._tell(tokens, finish)

    def _take_chunk(self, chunk: AnswerChunk, data: bytes, tokens: list[int]) -> None:
        if (has_any(chunk.error) or not chunk.choices) and (status := status_within(data)) is not None:
            raise ErrorEvent(status, data)
        call, joint, is_end = self._call, self._joint, False
        if joint is not None and (joined := joint.join(chunk, data)) is not data:
            if joined is None:
                return
            data = joined
        num_tokens = 0
        for choice in chunk.choices:
            num_tokens += (num_of_choice := choice.num_tokens)
            tokens += choice.token_ids or [0] * num_of_choice
            if choice.finish_reason:  # some servers say "" for none
                is_end = self._note_end(choice)
        if chunk.usage is not None:
            data = self._take_usage(chunk.usage, data)
        call.said.add(chunk if joint is None or not joint.is_from_start else read_chunk(data))
        if not chunk.choices and not call.body.wants_usage:
            return
        data = call.rewriter.rewrite(data)
        if self._strips_ids and (chunk.prompt_ids or any(choice.token_ids for choice in chunk.choices)):
            data = without_ids(data)
        if call.seams and is_end:
            data = with_seams(data, call.seams)
        call.put(b"data: " + data + b"\n\n", num_tokens)

    def _note_end(self, choice: ChunkChoice) -> bool:
        """Return whether all choices have ended."""
        self._ended.add(choice.index)
        if len(self._ended) < self._call.num_choices:
            return False
        self._finish = FinishReason.LENGTH if choice.finish_reason == "length" else FinishReason.STOP
        return True

    def _take_usage(self, usage: ServerUsage, data: bytes) -> bytes:
        """As it is of the whole answer."""
        if self._joint is None or self._joint.is_from_start:
            self._call.usage = usage
            return data
        data = with_usage(data, self._num_before, len(self._call.said.prompt_ids) or None)
        self._call.usage = read_usage(data)
        return data

    def _tell(self, tokens: list[int], finish: FinishReason | None) -> None:
        is_cut = finish is None and self._num_before + self._num_sent + len(tokens) > self._call.bound + MOST_EXTRA
        if finish is not None:
            tokens += self._uncounted(len(tokens))
        elif is_cut:
            finish = FinishReason.LENGTH
        if tokens or finish is not None:
            self._num_sent += len(tokens)
            usage = self._call.usage
            is_wanted = self._ends.got(tokens, finish, 0 if usage is None else usage.num_cached)
            self._is_over = self._is_over or finish is not None or not is_wanted
            if is_cut:
                self.stop()
            elif finish is not None and self.ongoing is not None:
                self.ongoing.done()

    def _uncounted(self, num_new: int) -> list[int]:
        """Tokens that had no event of their own, as the server's own count tells."""
        usage = self._call.usage
        counted = self._num_before + self._num_sent + num_new
        told = 0 if usage is None else min(usage.completion_tokens or 0, self._call.bound + MOST_EXTRA)
        return [0] * max(0, told - counted)


def _retry_after(text: str) -> float | None:
    """Seconds, where a server says so; dates are not read."""
    return float(text) if text.isdecimal() and len(text) < 10 else None
