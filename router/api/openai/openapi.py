"""The OpenAPI document: what the web framework knows of the routes, and what it cannot know of their answers."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastapi import FastAPI

from mesh.metrics.exposition import OPENMETRICS
from router.api.errors import MESSAGES_PATH

TOKEN_PATHS: Final = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages")
ROUTED_PATHS: Final = (*TOKEN_PATHS, "/v1/embeddings", "/v1/rerank", "/v1/score")

Json = dict[str, Any]

_ERROR: Final[Json] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "what is wrong: a field of the body, or a header"},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_MESSAGES_ERROR: Final[Json] = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
    },
}
ANYWHERE: Final[Mapping[int, str]] = {
    400: "A parameter is wrong, or the request is no HTTP",
    401: "The API key is missing or unknown",
    403: "The API key does not allow this",
    404: "No such model, request or path",
    405: "The path does not take this method",
    408: "The request came too slowly",
    414: "The path is too long",
    421: "The gateway is not the host that was asked for",
    429: "Too much to do; retry-after says when to try again",
    431: "The headers are too large or too many",
    500: "The gateway or the engines failed",
    502: "The servers behind the gateway broke off, or sent what is no answer",
    503: "No engine can take it, or the gateway is starting or shutting down",
}
WITH_BODY: Final[Mapping[int, str]] = {
    413: "The body is too large",
    415: "The body is not sent as JSON, or it is compressed",
}
ORDERED: Final[Mapping[int, str]] = {409: "What is ordered does not fit the mesh as it is"}
_REQUEST_ID: Final[Json] = {"x-request-id": {"description": "the request's name in logs", "schema": {"type": "string"}}}
_TRACE: Final[Json] = {
    "traceparent": {"description": "its trace, where gateways make traces", "schema": {"type": "string"}}
}
_RETRY_AFTER: Final[Json] = {"retry-after": {"description": "seconds", "schema": {"type": "string"}}}
_PLACEMENT: Final[Json] = {
    f"x-meshserve-{name}": {"description": what, "schema": {"type": "string"}}
    for name, what in (
        ("prefill", "the engine that reads the prompt"),
        ("decode", "the engine that writes the answer, as planned"),
        ("rule", "the policy's rule that chose them"),
        ("queued-ms", "milliseconds in the gateway's queue"),
        ("predicted-ttft-ms", "milliseconds to the first token, predicted at dispatch"),
    )
}


def describe_answers(app: FastAPI) -> None:
    """Let ``app`` describe every status, content type and header that comes, and none that does not."""
    made = app.openapi

    def described() -> Json:
        is_new = app.openapi_schema is None
        document = made()
        if is_new:
            for path, operations in document["paths"].items():
                for method, operation in operations.items():
                    _describe(path, method, operation["responses"])
        return document

    app.openapi = described  # type: ignore[method-assign]


def _describe(path: str, method: str, responses: Json) -> None:
    responses.pop("422", None)  # the framework's own, which nothing sends
    answer = responses["200"]
    answer["headers"] = _REQUEST_ID | (_PLACEMENT | _TRACE if path in ROUTED_PATHS else {})
    if path in TOKEN_PATHS:
        answer["content"]["text/event-stream"] = {}
    if path == "/mesh/feed":
        answer["content"] = {"text/event-stream": {}}
    if path == "/metrics":
        answer["content"] = {kind: {"schema": {"type": "string"}} for kind in ("text/plain", OPENMETRICS)}
    traced = _TRACE if path in ROUTED_PATHS else {}
    for status, what in _errors(path, method):
        headers = _REQUEST_ID | (_RETRY_AFTER if status in (429, 503) else {}) | traced
        schema = _MESSAGES_ERROR if path.startswith(MESSAGES_PATH) else _ERROR
        content = {"application/json": {"schema": schema}}
        responses[str(status)] = {"description": what, "headers": headers, "content": content}


def _errors(path: str, method: str) -> Iterable[tuple[int, str]]:
    yield from ANYWHERE.items()
    if method == "post":
        yield from WITH_BODY.items()
    if path.startswith("/mesh/engines/"):
        yield from ORDERED.items()
