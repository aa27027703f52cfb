"""Reads the header of a file of weights: which tensors are where, and whether the file is whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from engines.models.errors import ModelError

LONGEST = 100_000_000  # bytes of a header, as the library of the format has it


METADATA = "__metadata__"


class TensorEntry(msgspec.Struct, frozen=True):
    """The header's entry of a tensor, or of the metadata, which has no data. Offsets are in bytes, from the end of the
    header.
    """

    dtype: str = ""
    shape: tuple[int, ...] = ()
    data_offsets: tuple[int, int] = (0, 0)


class SafetensorsHeader(NamedTuple):
    """The header of a safetensors file. ``data_at``: where the data begin in the file, in bytes. ``entries`` by
    name.
    """

    data_at: int
    entries: Mapping[str, TensorEntry]


def check_whole(path: Path) -> None:
    """Raise `ModelError` unless the file has all the bytes that its header promises, and no others."""
    read_header(path)


def read_header(path: Path) -> SafetensorsHeader:
    """Raise `ModelError` as `check_whole` does."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(min(length, LONGEST))
        size = path.stat().st_size
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    try:
        entries = msgspec.json.decode(header, type=dict[str, TensorEntry])
    except msgspec.DecodeError as error:
        raise ModelError(f"{path}: damaged, or no safetensors file: its header cannot be read") from error
    expected = 8 + length + max((entry.data_offsets[1] for entry in entries.values()), default=0)
    if size != expected:
        raise ModelError(f"{path}: damaged: it has {size:,} bytes, by its header it should have {expected:,}")
    return SafetensorsHeader(8 + length, {name: entry for name, entry in entries.items() if name != METADATA})
