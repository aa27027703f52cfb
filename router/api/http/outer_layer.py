"""The outermost layer of the web framework: request ids in and out, and an answer to whatever goes wrong."""

import structlog
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from router.api.errors import ApiError, api_error, internal_error
from router.api.http.callers import Callers, limit_headers
from router.api.http.headers import headers_of, request_id
from router.generation import RouterError

log = structlog.get_logger()

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


class OuterLayer:
    """Names each request, asks who sent it, and turns an unexpected exception into a log record and a 500."""

    def __init__(self, app: ASGIApp, callers: Callers) -> None:
        self._app = app
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = headers_of(scope)
        name = request_id(headers)
        state = scope.setdefault("state", {})
        state["request_id"] = name
        own_header = (b"x-request-id", name.encode())
        started = False

        async def send_named(message: Message) -> None:
            nonlocal started
            if not started:
                message["headers"] = [*message["headers"], own_header, *limit_headers(scope)]
                started = True
            await send(message)

        try:
            state["caller"] = self._callers.admit(scope, headers)
            await self._app(scope, receive, send_named)
        except (ApiError, RouterError) as error:
            await error_response(api_error(error), scope["path"])(scope, receive, send_named)
        except Exception:
            log.exception("request failed", request=name, path=scope["path"])
            if started:
                raise
            await error_response(internal_error(name), scope["path"])(scope, receive, send_named)


def error_response(error: ApiError, path: str) -> Response:
    """Answer in the shape of the path's API."""
    return Response(error.body_for(path), error.status, headers=error.headers, media_type="application/json")


def install_error_handlers(app: FastAPI) -> None:
    async def expected(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError | RouterError)
        return error_response(api_error(error), request.url.path)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return error_response(http_error(error, request), request.url.path)

    app.add_exception_handler(ApiError, expected)
    app.add_exception_handler(RouterError, expected)
    app.add_exception_handler(HTTPException, http)


def http_error(error: HTTPException, request: Request) -> ApiError:
    """Answer what the web framework itself refuses: unknown paths and wrong methods."""
    what = f"{request.method} {request.url.path}"
    text = {404: f"Unknown path: {what}", 405: f"Wrong method: {what}"}.get(error.status_code, str(error.detail))
    return ApiError(error.status_code, text, code=_HTTP_CODES.get(error.status_code), headers=error.headers)
