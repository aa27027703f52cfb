"""Reads an upload (multipart/form-data) as it arrives: the file to disk, small fields to memory, all of it bounded."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from router.api.errors import ApiError, ClientGoneError, bad_parameter
from router.api.http.headers import headers_of

MAX_FIELDS: Final = 8
MAX_FIELD_BYTES: Final = 1024
MAX_HEADERS: Final = 8  # of a part
MAX_HEADER_BYTES: Final = 2048  # of all headers of a part
MAX_FILENAME: Final = 255  # characters
OVERHEAD_BYTES: Final = 64 * 1024  # of an upload that are not its file's
BUFFER_BYTES: Final = 1 << 20  # that are written at a time
PIECE_S: Final = 30.0  # until the next piece of a body is there
UPLOAD_S: Final = 1800.0  # for all of it


@dataclass(slots=True)
class Upload:
    """What was uploaded. ``filename``: as its sender calls it; the file itself is where it was to be written."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str = ""
    num_bytes: int = 0
    has_file: bool = False


async def read_upload(request: Request, path: Path, max_bytes: int) -> Upload:
    """Write the part named ``file`` to ``path``. Raise `ApiError`: no upload (400, 415), too large (413), slow (408).

    Nothing is left of an upload that failed.
    """
    boundary = _boundary(request)
    declared = headers_of(request.scope).get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes + OVERHEAD_BYTES:
        raise _too_large(max_bytes)
    try:
        with await asyncio.to_thread(_PartFile, path) as file:
            async with asyncio.timeout(UPLOAD_S):
                return await _read(request, _Form(boundary, max_bytes), file, max_bytes)
    except TimeoutError:
        message = f"The upload did not arrive: within {PIECE_S:g} s for each piece, and {UPLOAD_S:g} s for all of it"
        raise ApiError(408, message, code="body_timeout", headers={"connection": "close"}) from None


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(headers_of(request.scope).get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 1 <= len(boundary) <= 70:
        raise ApiError(415, "Send the file as multipart/form-data", code="unsupported_media_type")
    return boundary


class _PartFile:
    """A file that is there only if all went well."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.file: IO[bytes] = path.open("xb")

    def __enter__(self) -> IO[bytes]:
        return self.file

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.file.close()
        if kind is not None:
            self._path.unlink(missing_ok=True)


async def _read(request: Request, form: "_Form", file: IO[bytes], max_bytes: int) -> Upload:
    more, num_bytes = True, 0
    while more:
        async with asyncio.timeout(PIECE_S):
            message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        piece = message.get("body", b"")
        num_bytes += len(piece)
        if num_bytes > max_bytes + OVERHEAD_BYTES:
            raise _too_large(max_bytes)
        form.feed(piece)
        more = message.get("more_body", False)
        if len(form.pending) >= BUFFER_BYTES or not more:
            await asyncio.to_thread(file.write, form.take())
    if not form.is_whole:
        raise ApiError(400, "The upload ends before its last part does", code="invalid_multipart")
    return form.upload


class _Form:
    """What the parser finds. Names, values and headers are bounded; what is in the file is handed on."""

    def __init__(self, boundary: bytes, max_bytes: int) -> None:
        self.upload = Upload()
        self.pending = bytearray()  # of the file, not written yet
        self.is_whole = False
        self._max_bytes = max_bytes
        self._name, self._is_file = "", False
        self._value, self._header, self._headers = bytearray(), bytearray(), [bytearray(), bytearray()]
        self._num_headers = 0
        self._disposition = b""
        self._num_parts = 0
        calls: dict[str, Callable[..., None]] = {
            "on_part_begin": self._begin,
            "on_header_field": self._take_name,
            "on_header_value": self._take_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._take_data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }
        self._parser = MultipartParser(boundary, calls)  # type: ignore[arg-type]

    def feed(self, piece: bytes) -> None:
        try:
            self._parser.write(piece)
        except MultipartParseError as error:
            raise ApiError(
                400, f"The upload is no multipart/form-data: {error}"[:256], code="invalid_multipart"
            ) from None

    def take(self) -> bytes:
        """Return what is to be written."""
        taken = bytes(self.pending)
        self.pending.clear()
        return taken

    def _begin(self) -> None:
        self._num_parts += 1
        if self._num_parts > MAX_FIELDS:
            raise ApiError(400, f"An upload can have at most {MAX_FIELDS} parts", code="invalid_multipart")
        self._name, self._is_file, self._disposition, self._num_headers = "", False, b"", 0
        self._value.clear()
        self._headers = [bytearray(), bytearray()]

    def _take_name(self, data: bytes, start: int, end: int) -> None:
        self._take_header(0, data[start:end])

    def _take_value(self, data: bytes, start: int, end: int) -> None:
        self._take_header(1, data[start:end])

    def _take_header(self, which: int, data: bytes) -> None:
        self._headers[which] += data
        if sum(map(len, self._headers)) > MAX_HEADER_BYTES:
            raise ApiError(400, "The headers of a part are too long", code="invalid_multipart")

    def _end_header(self) -> None:
        self._num_headers += 1
        if self._num_headers > MAX_HEADERS:
            raise ApiError(400, "A part has too many headers", code="invalid_multipart")
        name, value = self._headers
        if bytes(name).lower() == b"content-disposition":
            self._disposition = bytes(value)
        self._headers = [bytearray(), bytearray()]

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode(errors="replace")[:64]
        self._is_file = self._name == "file"
        if self._is_file:
            if self.upload.has_file:
                raise bad_parameter("file", "is there twice")
            self.upload.has_file = True
            self.upload.filename = _clean(options.get(b"filename", b""))

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if not self._is_file:
            self._value += data[start:end]
            if len(self._value) > MAX_FIELD_BYTES:
                raise bad_parameter(self._name, f"can have at most {MAX_FIELD_BYTES} bytes")
            return
        self.upload.num_bytes += end - start
        if self.upload.num_bytes > self._max_bytes:
            raise _too_large(self._max_bytes)
        self.pending += data[start:end]

    def _end(self) -> None:
        if not self._is_file:
            self.upload.fields[self._name] = self._value.decode(errors="replace")

    def _finish(self) -> None:
        self.is_whole = True


def _clean(name: bytes) -> str:
    """A name to show, never a path."""
    text = name.decode(errors="replace").replace("\\", "/").rpartition("/")[2]
    return "".join(one for one in text if one.isprintable())[:MAX_FILENAME] or "file.jsonl"


def _too_large(max_bytes: int) -> ApiError:
    message = f"A file can have at most {max_bytes} bytes"
    return ApiError(413, message, code="request_too_large", headers={"connection": "close"})
