"""Asks clients to come back on another connection, once a successor takes those."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

CLOSE = (b"connection", b"close")


class Leaving:
    """Passes everything on to the app; once it is `set`, each answer is the last one of its connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_set and scope["type"] == "http":
            await self._app(scope, receive, _closing(send))
        else:
            await self._app(scope, receive, send)


def _closing(send: Send) -> Send:
    async def send_last(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), CLOSE]}
        await send(message)

    return send_last
