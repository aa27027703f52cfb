"""GET and POST /mesh/what-if: the page asks how requests would have fared under other policies or with other engines.

A recording comes as the body, as its file is; what is to be tried, in the query. The answer is server-sent events:
``progress`` (`router.ui.what_if.WhatIfProgress`), then ``result`` or ``error``. Whoever goes away ends the simulation.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mesh.clock import Clock
from router.api.errors import ApiError, ClientGoneError, bad_parameter
from router.api.http.disconnect import Outlet, run_until
from router.api.openai.answers.stream import HEADERS
from router.history.records import encode_line
from router.history.summary import record_of
from router.history.timeline import RequestTimeline
from router.history.timelines import KEPT_REQUESTS, Timelines
from router.policies.registry import policies
from router.ui.what_if import Failure, PlayedTopology, WhatIfProgress, WhatIfQuestion, event
from router.ui.what_if_run import Simulations

MAX_BYTES: Final = 20 << 20
MAX_LINES: Final = 50_000
BODY_S: Final = 60.0  # that a recording may take to come
REMEMBERED_S: Final = 3600.0
AT_ONCE: Final = 200  # records that are made before others go on
SOURCES: Final = ("remembered", "recording")


class WhatIfRoutes:
    def __init__(self, played: PlayedTopology, runs: Simulations, timelines: Timelines, clock: Clock) -> None:
        self._played = played
        self._runs = runs
        self._timelines = timelines
        self._clock = clock

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/mesh/what-if", self.choices, methods=["GET"], include_in_schema=False)
        app.add_api_route("/mesh/what-if", self.ask, methods=["POST"], include_in_schema=False)

    async def choices(self) -> Response:
        """What may be asked."""
        return JSONResponse(self._choices())

    def _choices(self) -> Mapping[str, Any]:
        remembered = self._remembered()
        return {
            "policies": list(policies()),
            "policy": self._played.policy,
            "pools": dict(self._played.pools),
            "remembered": len(remembered),
            "remembered_s": self._clock.now() - remembered[0].arrived_at if remembered else 0.0,
            "max_bytes": MAX_BYTES,
            "max_lines": MAX_LINES,
            "is_busy": self._runs.is_busy,
        }

    async def ask(self, request: Request) -> Response:
        """Simulate. 400: what is asked cannot be; 409: another simulation runs; 413: the recording is too large."""
        given = request.query_params
        source = given.get("source", SOURCES[0])
        if source not in SOURCES:
            raise bad_parameter("source", f"must be {' or '.join(SOURCES)}, not {source[:32]!r}")
        known, pools = policies(), self._played.pools
        question = WhatIfQuestion.of(given.getlist("policy"), given.getlist("engines"), known, pools)
        return _Answer(self, question, source)

    # --- the requests that are played ---------------------------------------------------------------------------------

    def _remembered(self) -> list[RequestTimeline]:
        """Those that ended in the last hour, in the order of their arrival."""
        since = self._clock.now() - REMEMBERED_S
        ended = self._timelines.last_ended(KEPT_REQUESTS)
        kept = [one for one in ended if one.ended is not None and one.arrived_at + one.ended.at_s >= since]
        return sorted(kept, key=lambda one: one.arrived_at)

    async def write(self, source: str, file: Path, request: Request) -> None:
        """Put what is to be played into a file; the body is read to its end."""
        if source == "recording":
            await _save(request, file)
            return
        await _skip(request)
        await self._write_remembered(file)

    async def _write_remembered(self, file: Path) -> None:
        remembered = self._remembered()
        if not remembered:
            raise ApiError(400, "This gateway remembers no request that ended in the last hour", code="nothing_to_play")
        origin_s = remembered[0].arrived_at
        with file.open("wb") as output:
            for start in range(0, len(remembered), AT_ONCE):
                part = remembered[start : start + AT_ONCE]
                output.writelines(encode_line(record_of(one, origin_s)) for one in part)
                await asyncio.sleep(0)

    async def simulate(self, question: WhatIfQuestion, recording: Path, outlet: Outlet) -> None:
        async def tell(progress: WhatIfProgress) -> None:
            await _send(outlet, event("progress", progress))

        await outlet.send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await tell(WhatIfProgress(0.0))
        command = question.command(self._played.topology, recording)
        answer = await self._runs.run(command, recording.parent, tell)
        name = "error" if isinstance(answer, Failure) else "result"
        await _send(outlet, event(name, answer), more=False)

    @property
    def runs(self) -> Simulations:
        return self._runs


async def _send(outlet: Outlet, piece: bytes, *, more: bool = True) -> None:
    await outlet.send({"type": "http.response.body", "body": piece, "more_body": more})


class _Answer(Response):
    """Takes its turn, takes the recording, and runs, as long as its reader stays."""

    def __init__(self, routes: WhatIfRoutes, question: WhatIfQuestion, source: str) -> None:
        self.status_code, self.background, self.raw_headers = 200, None, list(HEADERS)
        self._routes = routes
        self._question = question
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._routes.runs.settle()
        with self._routes.runs.turn(), TemporaryDirectory(prefix="what-if-") as folder:
            recording, outlet = Path(folder) / "recording.jsonl", Outlet(send)
            await self._routes.write(self._source, recording, Request(scope, receive))
            with suppress(ClientGoneError):
                work = self._routes.simulate(self._question, recording, outlet)
                await run_until(work, outlet.abandoned(receive))


async def _save(request: Request, file: Path) -> None:
    """Raise `ApiError`: 413 (too large), 400 (empty), 408 (too slow), 499 (gone)."""
    num_bytes = num_lines = 0
    with file.open("wb") as output:
        async with _in_time():
            async for piece in request.stream():
                num_bytes, num_lines = num_bytes + len(piece), num_lines + piece.count(b"\n")
                if num_bytes > MAX_BYTES or num_lines > MAX_LINES:
                    raise _too_large()
                output.write(piece)
    if not num_bytes:
        raise ApiError(400, "The recording is empty; choose a file with one request a line", code="nothing_to_play")


async def _skip(request: Request) -> None:
    """Read a body that says nothing."""
    num_bytes = 0
    async with _in_time():
        async for piece in request.stream():
            num_bytes += len(piece)
            if num_bytes > MAX_LINES:
                raise _too_large()


def _too_large() -> ApiError:
    message = f"A recording may have {MAX_BYTES >> 20} MiB and {MAX_LINES} lines; choose a part of it"
    return ApiError(413, message, code="request_too_large", headers={"connection": "close"})


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Say what HTTP says of a body that does not come, or no further."""
    try:
        async with asyncio.timeout(BODY_S):
            yield
    except TimeoutError:
        message = f"The recording took more than {BODY_S:.0f} s to come"
        raise ApiError(408, message, code="too_slow", headers={"connection": "close"}) from None
    except ClientDisconnect:
        raise ClientGoneError from None
