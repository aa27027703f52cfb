"""Hands what the page's playground asks, POST /mesh/chat, to the API of clients, under all of its limits.

A browser may not ask another address than the page's, so the admin address takes the request and passes it on inside
the process. The operator's key opens this address; the client's key, in a header of its own, is what the API is shown.
"""

from typing import Final

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATH: Final = "/v1/chat/completions"
CLIENT_KEY: Final = b"x-client-key"
NAME: Final = b"x-request-id"
OURS: Final = frozenset((CLIENT_KEY, NAME, b"authorization", b"host", b"origin", b"sec-fetch-site"))
PASSED_ON: Final = ("type", "asgi", "http_version", "method", "scheme", "query_string", "client", "server", "root_path")


class ChatRoutes:
    """``public``: the application of clients."""

    def __init__(self, public: ASGIApp) -> None:
        self._public = public

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/mesh/chat", self.chat, methods=["POST"], include_in_schema=False)

    async def chat(self, request: Request) -> Response:
        """Whatever `PATH` of the public address answers."""
        return _Forwarded(self._public)


class _Forwarded(Response):
    """The answer of another application."""

    def __init__(self, app: ASGIApp) -> None:
        self.status_code, self.background, self.raw_headers = 200, None, []
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_unnamed(message: Message) -> None:  # the outer layer names it
            if message["type"] == "http.response.start":
                message = {**message, "headers": [pair for pair in message["headers"] if pair[0] != NAME]}
            await send(message)

        await self._app(forwarded(scope), receive, send_unnamed)


def forwarded(scope: Scope) -> Scope:
    """The same request to `PATH`, with the client's key, under the name that the admin address gave it.

    Its host name and origin were checked on the way in: here it comes from this process.
    """
    key = next((value for name, value in scope["headers"] if name == CLIENT_KEY), None)
    headers = [(name, value) for name, value in scope["headers"] if name not in OURS]
    headers += [(b"host", b"localhost"), (NAME, scope["state"]["request_id"].encode())]
    if key:
        headers.append((b"authorization", b"Bearer " + key))
    passed = {name: scope[name] for name in PASSED_ON if name in scope}
    return {**passed, "path": PATH, "raw_path": PATH.encode(), "headers": headers, "state": {}}
