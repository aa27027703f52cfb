"""The routes /v1/files: upload, list, show, read, delete."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import IO, Final

from fastapi import FastAPI, Request, Response
from starlette.responses import StreamingResponse

from router.api.batches.pages import ID, json_response, page, page_asked
from router.api.batches.upload import Upload, read_upload
from router.api.errors import ApiError, bad_parameter
from router.api.http.callers import caller_of
from router.batches.records import KEPT_S, FilePurpose, StoredFile
from router.batches.store import StoreFullError
from router.batches.stored import StoredBatches
from router.generation import Overloaded

MAX_UPLOADS: Final = 8  # at a time
LEAST_KEPT_S, MOST_KEPT_S = 3600, KEPT_S
PIECE_BYTES: Final = 256 * 1024
MAX_LIMIT: Final = 10_000


class FileRoutes:
    """``max_file_bytes``: of one file. ``wall_clock``: seconds since the epoch."""

    def __init__(self, stored: StoredBatches, wall_clock: Callable[[], float], max_file_bytes: int) -> None:
        self._stored = stored
        self._wall_clock = wall_clock
        self._max_file_bytes = max_file_bytes
        self._num_uploads = 0

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/v1/files", self.upload, methods=["POST"])
        app.add_api_route("/v1/files", self.list_files, methods=["GET"])
        app.add_api_route("/v1/files/{file_id}", self.show, methods=["GET"])
        app.add_api_route("/v1/files/{file_id}", self.delete, methods=["DELETE"])
        app.add_api_route("/v1/files/{file_id}/content", self.content, methods=["GET"])

    async def upload(self, request: Request) -> Response:
        """Keep a file that is to be a batch."""
        if self._num_uploads >= MAX_UPLOADS:
            raise Overloaded(f"{MAX_UPLOADS} files are being uploaded already", 5.0)
        self._num_uploads += 1
        try:
            return json_response((await self._upload(request)).json())
        finally:
            self._num_uploads -= 1

    async def _upload(self, request: Request) -> StoredFile:
        owner, file_id = caller_of(request.scope).owner, f"file-{secrets.token_hex(16)}"
        declared = request.headers.get("content-length", "0")
        wanted = int(declared) if declared.isdecimal() and len(declared) < 16 else 0
        part = await self._stored.run(lambda store: store.path_of(f"{file_id}.part"))
        await self._allow(owner, min(wanted, self._max_file_bytes))
        upload = await read_upload(request, part, self._max_file_bytes)
        try:
            file = self._file(upload, owner, file_id)
            await self._stored.run(lambda store: store.add_file(file, part))
        except BaseException as error:
            part.unlink(missing_ok=True)
            raise (_full(error) if isinstance(error, StoreFullError) else error) from None
        return file

    async def _allow(self, owner: str, num_bytes: int) -> None:
        """Before a body is read: whether there is room for it."""
        try:
            await self._stored.run(lambda store: store.check_room(owner, num_bytes))
        except StoreFullError as error:
            raise _full(error) from None

    def _file(self, upload: Upload, owner: str, file_id: str) -> StoredFile:
        purpose = upload.fields.get("purpose")
        if purpose != FilePurpose.BATCH:
            raise bad_parameter("purpose", f'must be "batch", not {(purpose or "")[:32]!r}')
        if not upload.has_file:
            raise ApiError(400, "file: is required", param="file", code="missing_required_parameter")
        now = int(self._wall_clock())
        return StoredFile(
            file_id, owner, upload.filename, FilePurpose.BATCH, upload.num_bytes, now, now + _kept_s(upload)
        )

    async def list_files(self, request: Request) -> Response:
        """List the caller's files."""
        owner, asked = caller_of(request.scope).owner, page_asked(request, MAX_LIMIT)
        newest_first = request.query_params.get("order", "desc") != "asc"
        purpose = request.query_params.get("purpose")
        files = await self._stored.run(
            lambda store: store.files(owner, asked.after, asked.limit + 1, newest_first=newest_first)
        )
        shown = [file.json() for file in files[: asked.limit] if purpose in (None, str(file.purpose))]
        return json_response(page(shown, has_more=len(files) > asked.limit))

    async def show(self, file_id: str, request: Request) -> Response:
        """Tell of one file."""
        return json_response((await self._find(file_id, request)).json())

    async def _find(self, file_id: str, request: Request) -> StoredFile:
        owner = caller_of(request.scope).owner
        found = await self._stored.run(lambda store: store.file(file_id, owner)) if ID.fullmatch(file_id) else None
        if found is None or found.expires_at <= self._wall_clock():
            raise ApiError(404, f"No such file: {file_id[:64]!r}", param="id", code="file_not_found")
        return found

    async def delete(self, file_id: str, request: Request) -> Response:
        """Delete a file, unless a batch that is not over is of it."""
        file = await self._find(file_id, request)
        if await self._stored.run(lambda store: store.delete_file(file.id, file.owner)):
            raise ApiError(409, "A batch of this file is under way; cancel it first", param="id", code="file_in_use")
        return json_response({"id": file.id, "object": "file", "deleted": True})

    async def content(self, file_id: str, request: Request) -> Response:
        """Send what is in a file."""
        file = await self._find(file_id, request)
        path = await self._stored.run(lambda store: store.path_of(file.id))
        try:
            opened = await asyncio.to_thread(path.open, "rb")
        except OSError:
            raise ApiError(404, f"What was in {file.id} is gone", param="id", code="file_not_found") from None
        headers = {"content-length": str(file.num_bytes)}
        return StreamingResponse(_pieces(opened), headers=headers, media_type="application/octet-stream")


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    try:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece
    finally:
        file.close()


def _kept_s(upload: Upload) -> int:
    """Return how long a file is kept, as ``expires_after`` says."""
    wished = upload.fields.get("expires_after[seconds]")
    if wished is None:
        return KEPT_S
    seconds = int(wished) if wished.isascii() and wished.isdecimal() and len(wished) < 12 else 0
    if not LEAST_KEPT_S <= seconds <= MOST_KEPT_S:
        raise bad_parameter("expires_after[seconds]", f"must be a number in {LEAST_KEPT_S}..{MOST_KEPT_S}")
    return seconds


def _full(error: StoreFullError) -> ApiError:
    return ApiError(413, str(error), code="storage_full")
