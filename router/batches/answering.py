"""Answers one line of a batch: the gateway's own handler of its path is called, as if a client had sent it."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec
import structlog
from msgspec import Struct
from starlette.requests import Request
from starlette.types import Message, Scope

from router.api.errors import ApiError, api_error, internal_error
from router.api.http.callers import Caller
from router.api.http.fast_path import Handler
from router.batches.lines import NumberedLine
from router.batches.records import LineAnswer
from router.generation import RouterError

MAX_ANSWER_BYTES: Final = 16 * 2**20
PREFIX: Final = "/v1/"
AGAIN: Final = (408, 425, 429, 499, 503)  # statuses that say: not now

log = structlog.get_logger()


class HandlerAnswer(Struct, frozen=True):
    """What a handler answered. ``body`` is JSON."""

    status: int
    body: bytes
    request_id: str

    @property
    def is_for_later(self) -> bool:
        return self.status in AGAIN

    @property
    def is_servers_fault(self) -> bool:
        return self.status >= 500


class BatchCallers(Protocol):
    """Tells in whose name a batch runs."""

    def __call__(self, key: str, tenant: str, window_s: float) -> Caller:
        """Raise `ApiError` if the key is gone, or its time is over."""


class LineAnswerer:
    """Calls the handlers of the paths that lines may be for. ``num_waiting``: lines that wait for an engine."""

    def __init__(self, num_waiting: Callable[[], int] = lambda: 0) -> None:
        self.num_waiting = num_waiting
        self._handlers: dict[str, Handler] = {}

    def serve(self, handlers: Mapping[str, Handler]) -> None:
        """Take these handlers, by path: those of the API's own paths that take POST."""
        self._handlers |= {path: handle for path, handle in handlers.items() if path.startswith(PREFIX)}

    @property
    def paths(self) -> list[str]:
        """Return the paths that lines may name."""
        return sorted(self._handlers)

    async def answer(self, path: str, body: bytes, caller: Caller) -> HandlerAnswer:
        """Whatever goes wrong is an answer, too. To cancel this cancels the request."""
        name = f"batch-{secrets.token_hex(12)}"
        caught = _Caught()
        scope = _scope(path, body, name, caller)
        try:
            response = await self._handlers[path](Request(scope, _Body(body).receive))
            await response(scope, _Body(b"").receive, caught.send)
            return HandlerAnswer(caught.status, b"".join(caught.pieces), name)
        except (ApiError, RouterError) as error:
            failed = api_error(error)
        except Exception:
            log.exception("line of a batch failed", request=name, path=path)
            failed = internal_error(name)
        return HandlerAnswer(failed.status, failed.body(), name)


def _scope(path: str, body: bytes, name: str, caller: Caller) -> Scope:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
        "client": None,
        "state": {"request_id": name, "caller": caller},
    }


class _Body:
    """ASGI's ``receive`` of a client that stays."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Caught:
    """ASGI's ``send``, to memory."""

    def __init__(self) -> None:
        self.status = 200
        self.pieces: list[bytes] = []
        self._num_bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        piece = message.get("body", b"")
        self._num_bytes += len(piece)
        if self._num_bytes > MAX_ANSWER_BYTES:
            raise ApiError(500, f"The answer has more than {MAX_ANSWER_BYTES} bytes", code="answer_too_large")
        self.pieces.append(piece)


def line_answer(batch: str, line: NumberedLine, answer: HandlerAnswer) -> LineAnswer:
    """Write the line of an output or error file."""
    response = {
        "status_code": answer.status,
        "request_id": answer.request_id,
        "body": msgspec.Raw(answer.body or b"null"),
    }
    return _line(batch, line.number, line.custom_id, response, None, is_error=answer.status >= 400)


def unanswered(batch: str, line: NumberedLine, code: str, message: str) -> LineAnswer:
    """Write the line of an error file for what was never answered."""
    return _line(batch, line.number, line.custom_id, None, {"code": code, "message": message}, is_error=True)


def _line(batch: str, number: int, custom_id: str, response: object, error: object, *, is_error: bool) -> LineAnswer:
    text = {"id": f"batch_req_{batch[6:]}_{number}", "custom_id": custom_id, "response": response, "error": error}
    return LineAnswer(number, is_error, msgspec.json.encode(text) + b"\n")
