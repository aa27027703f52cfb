"""The fast path of requests for tokens: straight from the server to their handlers.

Routing, dependencies and the layers of a web framework cost a request more than choosing its engine, and each token
passes all of them on its way out. Everything else goes through the framework, which also describes these paths.
"""

from collections.abc import Awaitable, Callable, Mapping

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from router.api.errors import ApiError, api_error, internal_error
from router.api.http.callers import Callers, limit_headers
from router.api.http.headers import headers_of, request_id
from router.api.http.outer_layer import error_response
from router.generation import RouterError
from router.traces.tracer import Tracer

log = structlog.get_logger()

Handler = Callable[[Request], Awaitable[Response]]


class FastRoute:
    """One handler as an ASGI app, request ids and all. An error that comes before its answer begins is the answer.

    ``tracer``: begins a trace for each request; None: there are none.
    """

    def __init__(self, handle: Handler, callers: Callers, tracer: Tracer | None = None) -> None:
        self._handle = handle
        self._callers = callers
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        name = request_id(headers)
        state = scope.setdefault("state", {})
        state["request_id"] = name
        own_headers = [(b"x-request-id", name.encode())]
        if self._tracer is not None:
            state["trace"] = trace = self._tracer.begin(headers, scope["headers"])
            own_headers.append((b"traceparent", trace.header.encode()))
        try:
            state["caller"] = self._callers.admit(scope, headers)
            response = await self._handle(Request(scope, receive))
            response.raw_headers += [*own_headers, *limit_headers(scope)]
            await response(scope, receive, send)
            return
        except (ApiError, RouterError) as error:
            response = error_response(api_error(error), scope["path"])
        except Exception:
            log.exception("request failed", request=name, path=scope["path"])
            response = error_response(internal_error(name), scope["path"])
        response.raw_headers += [*own_headers, *limit_headers(scope)]
        await response(scope, receive, send)


class FastRoutes:
    """Sends POST requests for the paths of ``fast`` there, and all others to ``app``."""

    def __init__(self, app: ASGIApp, fast: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._fast = fast

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        app = self._fast.get(scope["path"], self._app) if is_post else self._app
        await app(scope, receive, send)
