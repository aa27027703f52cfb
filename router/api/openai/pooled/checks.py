"""Checks what a request asks of a model that makes vectors or scores. Pure."""

from mesh.topology.schema import Task
from router.api.errors import ApiError, bad_parameter
from router.api.openai.pooled.model import PooledModel


def check_dimensions(asked: int | None, model: PooledModel) -> None:
    """Raise `ApiError` unless vectors of the model may be cut to that."""
    if asked is None or asked == model.num_dimensions or asked in model.dimensions:
        return
    known = ", ".join(map(str, model.dimensions))
    may = f"may be cut to {known}" if known else "was not trained to be cut (dimensions in its topology)"
    raise bad_parameter("dimensions", f"{asked}: a vector of {model.service} has {model.num_dimensions}, and {may}")


def check_task_of(path: str, model: PooledModel) -> None:
    """Raise `ApiError` if the model makes something else than the path is for."""
    if path == "/v1/embeddings" and model.task is Task.SCORE:
        message = f'model: {model.service} has task = "score", and makes no vectors; ask {model.paths}'
        raise ApiError(400, message, param="model", code="invalid_value")
