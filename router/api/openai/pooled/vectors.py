"""Cuts, compares and writes vectors once they have come. Pure."""

import base64
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mesh.topology.schema import Task
from router.api.errors import ApiError, bad_parameter
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


def check_dimensions(asked: int | None, model: PooledModel) -> None:
    """Raise `ApiError` unless vectors of the model may be cut to that."""
    if asked is None or asked == model.num_dimensions or asked in model.dimensions:
        return
    known = ", ".join(map(str, model.dimensions))
    may = f"may be cut to {known}" if known else "was not trained to be cut (dimensions in its topology)"
    raise bad_parameter("dimensions", f"{asked}: a vector of {model.service} has {model.num_dimensions}, and {may}")


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


def check_task_of(path: str, model: PooledModel) -> None:
    """Raise `ApiError` if the model makes something else than the path is for."""
    if path == "/v1/embeddings" and model.task is Task.SCORE:
        message = f'model: {model.service} has task = "score", and makes no vectors; ask {model.paths}'
        raise ApiError(400, message, param="model", code="invalid_value")
