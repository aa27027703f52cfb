"""Cuts, compares and writes vectors once they have come. Pure. Gateways with services that make some import it."""

import base64
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from router.api.openai.pooled.model import PooledModel
from router.generation import Fault, RequestFailed

FLOAT: Final = np.dtype("<f4")  # as engines send it, and as clients want it in base64

Vectors = NDArray[np.float32]  # [texts, dimensions]


def vectors_of(rows: Sequence[bytes], model: PooledModel) -> Vectors:
    """Raise `RequestFailed` if an engine sent vectors of another length than the model has."""
    size = model.num_dimensions * FLOAT.itemsize
    if any(len(row) != size for row in rows):
        raise RequestFailed(f"an engine sent a vector without {model.num_dimensions} dimensions", Fault.SERVER)
    return np.frombuffer(b"".join(rows), FLOAT).reshape(len(rows), model.num_dimensions)


def cut(vectors: Vectors, dimensions: int | None) -> Vectors:
    """Return the first dimensions of each, as long as one again."""
    if dimensions is None or dimensions >= vectors.shape[1]:
        return vectors
    return _normalised(vectors[:, :dimensions])


def cosines(first: Vectors, second: Vectors) -> list[float]:
    """How alike the rows are: one of ``first`` with all of ``second``, or one with one."""
    products = (_normalised(first) * _normalised(second)).sum(axis=1, dtype=np.float64)
    return [float(value) for value in np.clip(products, -1.0, 1.0)]


def _normalised(vectors: Vectors) -> Vectors:
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    shortened: Vectors = np.divide(vectors, lengths, dtype=np.float32)
    return shortened


def written(vectors: Vectors, encoding: str) -> list[object]:
    """Return what JSON has of each: numbers, or the bytes of float32 in base64."""
    if encoding == "base64":
        rows = np.ascontiguousarray(vectors, FLOAT)
        return [base64.b64encode(row.tobytes()).decode() for row in rows]
    return list(vectors.tolist())
