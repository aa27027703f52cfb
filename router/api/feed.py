"""GET /mesh/feed: what happens in the mesh, as server-sent events for pages and for ``mesh top``."""

from contextlib import suppress

from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from router.api.errors import ApiError, ClientGoneError
from router.api.http.disconnect import Outlet, run_until
from router.api.openai.answers.stream import HEADERS
from router.feed.broadcast import MOST_READERS, FeedBroadcast


class FeedRoutes:
    def __init__(self, broadcast: FeedBroadcast) -> None:
        self._broadcast = broadcast

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/mesh/feed", self.feed, methods=["GET"])

    async def feed(self) -> Response:
        """Frames of `router.feed.frames`, until the gateway leaves; 503 while too many read."""
        if self._broadcast.is_full:
            message = f"{MOST_READERS} others read this gateway's feed; close one of them"
            raise ApiError(503, message, code="feed_full", headers={"retry-after": "10"})
        return FeedResponse(self._broadcast)


class FeedResponse(Response):
    """Sends the feed until its reader goes away or stops reading."""

    def __init__(self, broadcast: FeedBroadcast) -> None:
        self.status_code, self.background, self.raw_headers = 200, None, list(HEADERS)
        self._broadcast = broadcast

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outlet = Outlet(send)
        with suppress(ClientGoneError):
            await run_until(self._send(outlet), outlet.abandoned(receive))

    async def _send(self, outlet: Outlet) -> None:
        await outlet.send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for piece in self._broadcast.read():
            await outlet.send({"type": "http.response.body", "body": piece, "more_body": True})
        await outlet.send({"type": "http.response.body", "body": b"", "more_body": False})
