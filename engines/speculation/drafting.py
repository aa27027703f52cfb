"""Lets a draft model write drafts for the decodes of a step, which then checks them.

The draft model draws with the random numbers of the request's seed and the positions, by which the step draws, too. So
where both models think alike they draw alike, greedy or not, and a draft is right as often as that can be without
another draw.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from engines.costs.step_cost import StepLoad
from engines.scheduling.batch import Chunk, Drafting, Draw
from engines.speculation.verification import Compute

FEW = 4  # tokens that a draft model lacks are rows of decodes, which take less time than a chunk


class Drafted(NamedTuple):
    """Chunks with their drafts, and the seconds of each step that the draft model took for them."""

    chunks: Sequence[Chunk]
    steps_s: Sequence[float]


def write_drafts(chunks: Sequence[Chunk], computes: Callable[[str], Compute], clock: Callable[[], float]) -> Drafted:
    """Write what chunks have as `Chunk.drafting`. ``computes``: of a service, as `compute_verified` wants it."""
    pending = [index for index, chunk in enumerate(chunks) if chunk.drafting is not None]
    if not pending:
        return Drafted(chunks, ())
    written: dict[int, list[int]] = {index: [] for index in pending}
    compute = computes(_drafting(chunks[pending[0]]).service)
    steps_s: list[float] = []
    while pending:
        rows = [_rows(chunks[index], written[index]) for index in pending]
        started = clock()
        results = compute([row for of_one in rows for row in of_one])
        steps_s.append(clock() - started)
        last, still = -1, list[int]()
        for index, of_one in zip(pending, rows, strict=True):
            last += len(of_one)
            if (token := results[last].token) is not None:
                written[index].append(token)
                if len(written[index]) < _drafting(chunks[index]).number:
                    still.append(index)
        pending = still
    drafted = list(chunks)
    for index, drafts in written.items():
        drafted[index] = msgspec.structs.replace(chunks[index], drafts=drafts, drafting=None)
    return Drafted(drafted, steps_s)


def loads_of(draftings: Sequence[Drafting]) -> list[StepLoad]:
    """Return what the draft model computes in each of its steps, if it never stops before it has written all."""
    if not draftings:
        return []
    chunks = [(one.end - one.start, one.start) for one in draftings if one.end - one.start > FEW]
    rows = [(one.end - one.start, one.end) for one in draftings if one.end - one.start <= FEW]
    loads = [StepLoad(chunks, sum([number for number, _ in rows]), sum([number * end for number, end in rows]))]
    for place in range(1, max([one.number for one in draftings])):
        contexts = [one.end + place for one in draftings if one.number > place]
        loads.append(StepLoad((), len(contexts), sum(contexts)))
    return loads


def _drafting(chunk: Chunk) -> Drafting:
    assert chunk.drafting is not None, "a draft model writes for it"
    return chunk.drafting


def _rows(chunk: Chunk, written: Sequence[int]) -> list[Chunk]:
    """What the draft model computes next of a request: at first what it lacks, then each draft."""
    order, own = _drafting(chunk), chunk.draw
    assert own is not None, "a decode draws"
    draw = None
    if order.number:
        sampling = msgspec.structs.replace(own.sampling, logprobs=None)
        position = own.position + len(written)
        draw = Draw(sampling, own.tokens, own.num_prompt, position, own.request, drafts=tuple(written))
    if written:
        return [Chunk(chunk.request, (written[-1],), order.end + len(written) - 1, order.blocks, draw)]
    tokens = own.tokens[order.start : order.end]
    if len(tokens) > FEW:
        return [Chunk(chunk.request, tokens, order.start, order.blocks, draw)]
    last = len(tokens) - 1
    return [
        Chunk(chunk.request, (token,), order.start + place, order.blocks, draw if place == last else None)
        for place, token in enumerate(tokens)
    ]
