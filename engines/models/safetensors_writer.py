"""Writes a safetensors file one tensor at a time: a model need not fit in memory."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 64  # of the data behind the header, so that mapped tensors start on cache lines


class SafetensorsWriter:
    """A file of float32 tensors whose names and shapes are known beforehand; write them in that order."""

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes
        self._pending = list(shapes)[::-1]
        self._file = path.open("wb")
        self._file.write(_header(shapes))

    def write(self, name: str, tensor: NDArray[np.float32]) -> None:
        expected = self._pending.pop()
        if name != expected or tensor.shape != self._shapes[name] or tensor.dtype != np.float32:
            raise ValueError(f"expected {expected} {self._shapes[expected]}, got {name} {tensor.shape} {tensor.dtype}")
        self._file.write(np.ascontiguousarray(tensor).data)

    def __enter__(self) -> "SafetensorsWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        if kind is None and self._pending:
            raise ValueError(f"tensors not written: {', '.join(reversed(self._pending))}")


def _header(shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + 4 * math.prod(shape)
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": (offset, end)}
        offset = end
    text = json.dumps(entries).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
