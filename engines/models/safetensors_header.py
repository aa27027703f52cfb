"""Whether a file of weights is whole, by its header: no weights are read."""

from pathlib import Path

import msgspec

from engines.models.errors import ModelError

LONGEST = 100_000_000  # bytes of a header, as the library of the format has it


class _Entry(msgspec.Struct, frozen=True):
    """Of a tensor; of the metadata, which has no data."""

    data_offsets: tuple[int, int] = (0, 0)


def check_whole(path: Path) -> None:
    """Raise `ModelError` unless the file has all the bytes that its header promises, and no others."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(min(length, LONGEST))
        size = path.stat().st_size
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    try:
        entries = msgspec.json.decode(header, type=dict[str, _Entry])
    except msgspec.DecodeError as error:
        raise ModelError(f"{path}: damaged, or no safetensors file: its header cannot be read") from error
    expected = 8 + length + max((entry.data_offsets[1] for entry in entries.values()), default=0)
    if size != expected:
        raise ModelError(f"{path}: damaged: it has {size:,} bytes, by its header it should have {expected:,}")
