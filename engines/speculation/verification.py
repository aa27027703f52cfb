"""Checks drafts in one step: each of them is a row of a batch of decodes, over the blocks of one request.

The token at a position is sampled from the model's logits with the random number of that position and the request's
seed, whatever was drafted. So a draft is right if it is the token that was sampled. An answer is the same as without
drafts, be it greedy or sampled: nothing is accepted at random, and no distribution changes.
"""

from collections.abc import Callable, Sequence

import msgspec

from engines.scheduling.batch import Chunk, ChunkResult

Compute = Callable[[Sequence[Chunk]], Sequence[ChunkResult]]


def compute_verified(chunks: Sequence[Chunk], compute: Compute) -> Sequence[ChunkResult]:
    """Compute chunks with `Chunk.drafts` by ``compute``, which knows of none. It has to store the KV of all rows before
    it reads any, or compute them in order.
    """
    if not any(chunk.drafts for chunk in chunks):
        return compute(chunks)
    rows = [row for chunk in chunks for row in rows_of(chunk)]
    results, first, merged = compute(rows), 0, list[ChunkResult]()
    for chunk in chunks:
        last = first + 1 + len(chunk.drafts)
        merged.append(_accepted(chunk.drafts, results[first:last]))
        first = last
    return merged


def rows_of(chunk: Chunk) -> list[Chunk]:
    """Return the chunk as chunks without drafts: a decode, and one after each draft."""
    draw = chunk.draw
    if not chunk.drafts or draw is None:
        return [chunk]
    return [
        Chunk(
            chunk.request,
            (token,),
            chunk.start + place,
            chunk.blocks,
            msgspec.structs.replace(draw, position=draw.position + place, drafts=chunk.drafts[:place]),
            adapter=chunk.adapter,
        )
        for place, token in enumerate((*chunk.tokens, *chunk.drafts))
    ]


def _accepted(drafts: Sequence[int], results: Sequence[ChunkResult]) -> ChunkResult:
    """The first one, with those that follow as long as drafts are what was drawn."""
    further: list[ChunkResult] = []
    for draft, before, result in zip(drafts, results, results[1:], strict=False):
        if before.token != draft or result.token is None:
            break
        further.append(result)
    return msgspec.structs.replace(results[0], further=further, num_checked=len(drafts)) if drafts else results[0]
