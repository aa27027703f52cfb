"""The lines of a batch's file: one request each. Pure, but for the file that is read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from router.batches.records import MAX_ERRORS, FileFault

MAX_LINES: Final = 50_000
MAX_LINE_BYTES: Final = 1 << 20
MAX_CUSTOM_ID: Final = 512  # characters


class BatchLine(Struct, frozen=True):
    """One request of a batch, as OpenAI writes it."""

    custom_id: Annotated[str, Meta(min_length=1, max_length=MAX_CUSTOM_ID)]
    method: Literal["POST"]
    url: Annotated[str, Meta(max_length=256)]
    body: dict[str, Any]


class NumberedLine(Struct, frozen=True):
    """A line that is to be answered. ``number`` counts from 1; ``body`` is JSON."""

    number: int
    custom_id: str
    body: bytes


_DECODER: Final = msgspec.json.Decoder(BatchLine)


def raw_lines(path: Path, most_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers. One that is too long is cut behind the bound."""
    number = 0
    with path.open("rb") as file:
        while piece := file.readline(most_bytes + 1):
            number += 1
            is_cut = len(piece) > most_bytes
            if is_cut:
                while not piece.endswith(b"\n") and (rest := file.readline(most_bytes + 1)):
                    piece = piece[: most_bytes + 1] + (b"\n" if rest.endswith(b"\n") else b"")
            if is_cut or piece.strip():
                yield number, piece


def check_file(path: Path, endpoint: str, most_lines: int = MAX_LINES) -> tuple[int, list[FileFault]]:
    """Return how many requests a file has and its first faults. Where there is any, it is no batch."""
    known: set[str] = set()
    faults: list[FileFault] = []
    num_lines = 0
    for number, text in raw_lines(path):
        num_lines += 1
        if num_lines > most_lines:
            return num_lines, [FileFault("too_many_requests", f"a batch can have at most {most_lines} requests")]
        fault = _fault_of(text, number, endpoint, known)
        if fault is not None:
            faults.append(fault)
            if len(faults) == MAX_ERRORS:
                break
    return num_lines, faults if num_lines else [FileFault("empty_file", "the file has no request")]


def _fault_of(text: bytes, number: int, endpoint: str, known: set[str]) -> FileFault | None:
    if len(text.rstrip(b"\n")) > MAX_LINE_BYTES:
        return FileFault("line_too_long", f"a line can have at most {MAX_LINE_BYTES} bytes", number)
    try:
        line = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return FileFault("invalid_json_line", f"{error}"[:256], number)
    if line.url != endpoint:
        return FileFault("mismatched_url", f"url: {line.url[:64]!r} is not the batch's {endpoint!r}", number, "url")
    if line.custom_id in known:
        return FileFault("duplicate_custom_id", f"{line.custom_id[:64]!r} is there already", number, "custom_id")
    if line.body.get("stream"):
        return FileFault("invalid_value", "stream: nobody listens to a batch; leave it out", number, "stream")
    known.add(line.custom_id)
    return None


def requests_of(path: Path, answered: set[int]) -> Iterator[NumberedLine]:
    """Yield the requests of a file that was checked, but for those that are answered."""
    for number, text in raw_lines(path):
        if number not in answered:
            line = _DECODER.decode(text)
            yield NumberedLine(number, line.custom_id, msgspec.json.encode(line.body))
