"""The bodies of answers: vectors, documents in their new order, scores."""

from collections.abc import Sequence
from typing import Any

from mesh.topology.schema import Task
from router.api.openai.pooled.bodies import EmbeddingBody, RerankBody
from router.api.openai.pooled.call import PooledCall
from router.api.openai.pooled.vectors import Vectors, cosines, cut, vectors_of, written


def _usage(call: PooledCall) -> dict[str, int]:
    return {"prompt_tokens": call.order.num_tokens, "total_tokens": call.order.num_tokens}


def _vectors(call: PooledCall) -> Vectors:
    return vectors_of(call.vectors, call.order.model)


def embeddings(call: PooledCall, body: EmbeddingBody) -> dict[str, Any]:
    rows = written(cut(_vectors(call), body.dimensions), body.encoding_format or "float")
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
        "model": call.order.name,
        "usage": _usage(call),
    }


def _scores(call: PooledCall, num_first: int) -> list[float]:
    """One for each pair: the model's own, or the cosine of its vectors."""
    vectors = _vectors(call)
    if call.order.model.task is Task.SCORE:
        return [float(value) for value in vectors[:, 0]]
    return cosines(vectors[:num_first], vectors[num_first:])


def reranked(call: PooledCall, body: RerankBody, documents: Sequence[str]) -> dict[str, Any]:
    """The best first; of equal ones, in their order."""
    scores = _scores(call, 1)
    best = sorted(range(len(scores)), key=lambda index: -scores[index])
    results = [{"index": index, "relevance_score": scores[index]} for index in best[: body.top_n or len(best)]]
    if body.return_documents is not False:
        for result in results:
            result["document"] = {"text": documents[int(result["index"])]}  # type: ignore[assignment]
    return {"id": call.order.answer_id, "model": call.order.name, "usage": _usage(call), "results": results}


def scored(call: PooledCall, num_first: int, created: int) -> dict[str, Any]:
    scores = _scores(call, num_first)
    return {
        "id": call.order.answer_id,
        "object": "list",
        "created": created,
        "model": call.order.name,
        "data": [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)],
        "usage": _usage(call),
    }
