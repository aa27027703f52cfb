"""The routes /v1/batches: create, list, show, cancel."""

import secrets
from collections.abc import Callable
from typing import Annotated, Final

from fastapi import FastAPI, Request, Response
from msgspec import Meta

from router.api.background import Background
from router.api.batches.pages import ID, json_response, page, page_asked
from router.api.errors import ApiError, bad_parameter
from router.api.http.admission import BodyAdmission
from router.api.http.callers import caller_of
from router.api.openai.input.bodies import Body
from router.api.openai.input.reading import read_body
from router.batches.answering import LineAnswerer
from router.batches.records import BatchStatus, StoredBatch
from router.batches.store import StoreFullError
from router.batches.stored import StoredBatches
from router.batches.windows import window_s

MAX_BODY_BYTES: Final = 64 * 1024
MAX_LIMIT: Final = 100

MetadataKey = Annotated[str, Meta(max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]


class BatchBody(Body, kw_only=True):
    """What asks for a batch."""

    input_file_id: Annotated[str, Meta(max_length=128)]
    endpoint: Annotated[str, Meta(max_length=128)]
    completion_window: Annotated[str, Meta(max_length=32)]
    metadata: Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=16)] | None = None


class BatchRoutes:
    """``answerer``: knows the paths that lines may be for; ``wake``: called when there is a new batch."""

    def __init__(
        self,
        stored: StoredBatches,
        answerer: LineAnswerer,
        wake: Callable[[], None],
        wall_clock: Callable[[], float],
        admission: BodyAdmission,
        background: Background,
    ) -> None:
        self._stored = stored
        self._answerer = answerer
        self._wake = wake
        self._wall_clock = wall_clock
        self._admission = admission
        self._background = background

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/v1/batches", self.create, methods=["POST"])
        app.add_api_route("/v1/batches", self.list_batches, methods=["GET"])
        app.add_api_route("/v1/batches/{batch_id}", self.show, methods=["GET"])
        app.add_api_route("/v1/batches/{batch_id}/cancel", self.cancel, methods=["POST"])

    async def create(self, request: Request) -> Response:
        """Begin a batch of a file."""
        caller = caller_of(request.scope)
        with self._admission.enter(caller.peer) as entry:
            body = await read_body(request, BatchBody, MAX_BODY_BYTES, entry, self._background)
        if body.endpoint not in (paths := self._answerer.paths):
            raise bad_parameter("endpoint", f"{body.endpoint[:64]!r} is none; use one of {', '.join(paths)}")
        try:
            seconds = window_s(body.completion_window)
        except ValueError as error:
            raise bad_parameter("completion_window", str(error)) from None
        now = int(self._wall_clock())
        batch = StoredBatch(
            id=f"batch_{secrets.token_hex(16)}",
            owner=caller.owner,
            key="" if caller.rights is None else caller.rights.key,
            tenant=caller.tenant,
            endpoint=body.endpoint,
            input_file=body.input_file_id,
            window=body.completion_window,
            created_at=now,
            expires_at=now + seconds,
            metadata=body.metadata,
        )
        await self._add(batch)
        self._wake()
        return json_response(batch.json())

    async def _add(self, batch: StoredBatch) -> None:
        found = None
        if ID.fullmatch(batch.input_file):
            found = await self._stored.run(lambda store: store.file(batch.input_file, batch.owner))
        if found is None or found.expires_at <= self._wall_clock():
            raise ApiError(
                404, f"No such file: {batch.input_file[:64]!r}", param="input_file_id", code="file_not_found"
            )
        try:
            await self._stored.run(lambda store: store.add_batch(batch))
        except StoreFullError as error:
            raise ApiError(429, str(error), code="too_many_batches") from None

    async def list_batches(self, request: Request) -> Response:
        """List the caller's batches, the newest first."""
        owner, asked = caller_of(request.scope).owner, page_asked(request, MAX_LIMIT)
        found = await self._stored.run(lambda store: store.batches(owner, asked.after, asked.limit + 1))
        shown = [batch.json() for batch in found[: asked.limit]]
        return json_response(page(shown, has_more=len(found) > asked.limit))

    async def show(self, batch_id: str, request: Request) -> Response:
        """Tell how a batch goes on."""
        return json_response((await self._find(batch_id, request)).json())

    async def _find(self, batch_id: str, request: Request) -> StoredBatch:
        owner = caller_of(request.scope).owner
        found = await self._stored.run(lambda store: store.batch(batch_id, owner)) if ID.fullmatch(batch_id) else None
        if found is None:
            raise ApiError(404, f"No such batch: {batch_id[:64]!r}", param="id", code="batch_not_found")
        return found

    async def cancel(self, batch_id: str, request: Request) -> Response:
        """Cancel a batch: what was answered is in its files."""
        batch, now = await self._find(batch_id, request), self._wall_clock()
        if batch.status.is_over:
            raise ApiError(409, f"The batch is {batch.status} already", param="id", code="batch_is_over")

        def cancelled(known: StoredBatch) -> StoredBatch:
            is_early = known.status in (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS)
            return known.becomes(BatchStatus.CANCELLING, now) if is_early else known

        changed = await self._stored.run(lambda store: store.change(batch.id, cancelled))
        return json_response(changed.json())
