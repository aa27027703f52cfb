"""Lengths that a paper describes instead of a file: those of Llumnix's evaluation (OSDI 2024, table 1).

Its power laws make a length proportional to a rank of 1 to twice the mean. A rank ``k`` weighs ``k ** -exponent``.
The factor makes the mean, and no length is above `LONGEST`. So it is in the generator of its published artifact
(benchmark_throughput.py); what that draws has the quantiles of the table's rows within 15 %.

Its data sets are not at hand (the artifact names `shibing624/sharegpt_gpt4`, first turns, and BurstGPT's conversations
with GPT-4). So they are drawn from the table's quantiles, with lines between them: lines of lengths for answers, and
of their logarithms for prompts. The quantiles are quoted from memory of the table: no copy of the paper at hand has
it. What speaks for them: the means come out at 321 and 509 tokens for ShareGPT (the table: 306 and 500), at 781 and
294 for BurstGPT (830 and 271, which others quote, too). Prompts and answers are independent of each other.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from math import ceil, exp, log
from random import Random

from simulation.loads.rows import TraceError
from simulation.loads.trace_request import TraceRequest

PREFIX = "llumnix:"
POOL = 10_000  # requests
LONGEST = 6144  # tokens
POWER_LAWS = {"S": (128, 2.0), "M": (256, 1.5), "L": (512, 1.15)}  # mean, exponent

Quantiles = Sequence[tuple[float, int]]  # (share of requests, tokens), ascending
DATA_SETS: dict[str, tuple[Quantiles, Quantiles]] = {  # prompts, answers
    "sharegpt": (
        ((0.0, 4), (0.5, 74), (0.8, 348), (0.95, 1484), (0.99, 3388), (1.0, LONGEST)),
        ((0.0, 16), (0.5, 487), (0.8, 781), (0.95, 988), (0.99, 1234), (1.0, 2048)),
    ),
    "burstgpt": (
        ((0.0, 4), (0.5, 582), (0.8, 1427), (0.95, 2345), (0.99, 3549), (1.0, LONGEST)),
        ((0.0, 4), (0.5, 243), (0.8, 434), (0.95, 669), (0.99, 964), (1.0, 2048)),
    ),
}


def described_lengths(name: str) -> list[TraceRequest]:
    """A pool for ``llumnix:S-L`` (prompts and answers: short, medium or long) or ``llumnix:sharegpt``.

    Raise `TraceError` for any other name.
    """
    what = name.removeprefix(PREFIX)
    prompt, _, answer = what.partition("-")
    if what in DATA_SETS:
        prompts, answers = DATA_SETS[what]
        return _pool(_spread(partial(_between, prompts, log, exp)), _spread(partial(_between, answers, float, float)))
    if prompt in POWER_LAWS and answer in POWER_LAWS:
        return _pool(*(_power_law(*POWER_LAWS[size]) for size in (prompt, answer)))
    known = ", ".join(POWER_LAWS)
    raise TraceError(
        f"{name}: no such lengths; there are {', '.join(PREFIX + data_set for data_set in DATA_SETS)} and power laws"
        f" such as {PREFIX}S-L, of prompts and of answers, each one of {known}"
    )


def _pool(inputs: Sequence[int], outputs: Sequence[int]) -> list[TraceRequest]:
    """Every length of either as often as its distribution says, paired at random and always the same way."""
    shuffled = Random("pairs").sample(outputs, len(outputs))
    return [TraceRequest(0.0, *pair) for pair in zip(inputs, shuffled, strict=True)]


def _power_law(mean: int, exponent: float) -> list[int]:
    ranks = range(1, 2 * mean)
    weights = [rank**-exponent for rank in ranks]
    bounds = [bound / sum(weights) for bound in accumulate(weights)]
    factor = mean * sum(weights) / sum(rank * weight for rank, weight in zip(ranks, weights, strict=True))
    lengths, index = [], 0
    for share in _shares():
        while bounds[index] < share:
            index += 1
        lengths.append(min(ceil(ranks[index] * factor), LONGEST))
    return lengths


def _spread(quantile: Callable[[float], float]) -> list[int]:
    return [round(quantile(share)) for share in _shares()]


def _shares() -> list[float]:
    return [(index + 0.5) / POOL for index in range(POOL)]


def _between(quantiles: Quantiles, to: Callable[[float], float], back: Callable[[float], float], share: float) -> float:
    """The length at a share, on the line between two quantiles of what ``to`` makes of lengths."""
    for (before, low), (after, high) in pairwise(quantiles):
        if share <= after:
            return back(to(low) + (to(high) - to(low)) * (share - before) / (after - before))
    raise ValueError(f"{share} is no share")
