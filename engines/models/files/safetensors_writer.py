"""Writes a safetensors file one tensor at a time: a model need not fit in memory."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_ALIGNMENT = 64  # of the data behind the header, so that mapped tensors start on cache lines


_DTYPES = {np.dtype(np.float32): "F32", np.dtype(np.uint8): "U8"}


class SafetensorsWriter:
    """A file of tensors of one dtype whose names and shapes are known beforehand; write them in that order."""

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, tuple[int, ...]],
        dtype: DTypeLike = np.float32,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._shapes = shapes
        self._dtype = np.dtype(dtype)
        self._pending = list(shapes)[::-1]
        self._file = path.open("wb")
        self._file.write(_header(shapes, self._dtype, {"format": "pt", **(metadata or {})}))

    def write(self, name: str, tensor: NDArray[Any]) -> None:
        expected = self._pending.pop()
        if name != expected or tensor.shape != self._shapes[name] or tensor.dtype != self._dtype:
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


def _header(shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype[Any], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": metadata}
    offset = 0
    for name, shape in shapes.items():
        end = offset + dtype.itemsize * math.prod(shape)
        entries[name] = {"dtype": _DTYPES[dtype], "shape": shape, "data_offsets": (offset, end)}
        offset = end
    text = json.dumps(entries).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
