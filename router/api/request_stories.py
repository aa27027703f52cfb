"""Tells what happened to recent requests: GET /mesh/requests and /mesh/requests/{id}."""

import asyncio
from typing import Annotated

import msgspec
from fastapi import FastAPI, Response
from pydantic import WithJsonSchema

from mesh.clock import Clock
from router.api.errors import ApiError, bad_parameter
from router.api.openai.input.ids import is_meant
from router.history.explain import HistoryMemory, explain, memory
from router.history.timeline import RequestTimeline
from router.history.timelines import Timelines

MAX_LISTED = 1000
MAX_DIGITS = 9  # Python reads no number of thousands of digits
MAX_FOUND = 64

# Read by hand, so that a mistake is answered as all others are.
Limit = Annotated[str, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_LISTED})]


class RequestRoutes:
    def __init__(self, gateway: str, timelines: Timelines, clock: Clock) -> None:
        self._gateway = gateway
        self._timelines = timelines
        self._clock = clock

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/mesh/requests", self.list_recent, methods=["GET"])
        app.add_api_route("/mesh/requests/{request:path}", self.show, methods=["GET"])

    async def list_recent(self, limit: Limit = "20") -> Response:
        """The last requests to arrive, newest first."""
        is_number = limit.isascii() and limit.isdecimal() and len(limit) <= MAX_DIGITS
        if not is_number or int(limit) > MAX_LISTED:
            raise bad_parameter("limit", f"must be a whole number up to {MAX_LISTED}, not {limit[:32]!r}")
        return await self._answer(self._timelines.recent(int(limit)))

    async def show(self, request: str) -> Response:
        """The choices that an id means (a choice's, an answer's, or an ``x-request-id``), newest first, or 404."""
        found = self._timelines.find(lambda choice: is_meant(choice, request))[:MAX_FOUND]
        if not found:
            raise ApiError(404, self._unknown(request), code="request_not_found")
        return await self._answer(found)

    async def _answer(self, found: list[RequestTimeline]) -> Response:
        """Explanations of stories. A story has up to 64 events with all engines each, so others go in between."""
        now, told = self._clock.now(), []
        for timeline in found:
            told.append(msgspec.Raw(msgspec.json.encode(explain(timeline, now))))
            await asyncio.sleep(0)
        answer = {"gateway": self._gateway, "memory": memory(self._timelines, now), "requests": told}
        return Response(msgspec.json.encode(answer), media_type="application/json")

    def _unknown(self, request: str) -> str:
        return f"{self._gateway} knows no request {request!r}: {_scope(memory(self._timelines, self._clock.now()))}"


def _scope(known: HistoryMemory) -> str:
    if not known.num_requests:
        return "it has had none since it started"
    if known.age_s is None:
        return f"it remembers every request since it started ({known.num_requests})"
    return f"it remembers the last {known.num_requests}, those that ended in the last {duration(known.age_s)}"


def duration(seconds: float) -> str:
    """Write a duration in words, for instance 42 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
