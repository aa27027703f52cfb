"""Predicts what requests will need until they end, if answers are as long as expected (Aladdin, section 4.2).

Every request that runs holds one token more after each step, and none after its last one. So what all of them hold
rises until one ends, falls, and rises again: it is highest at the ends. Those peaks are all that has to be known to see
whether a further request would ever be without memory.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import islice
from math import inf

from engines.engine_request import EngineRequest
from mesh.wire.status import Demand

MOST_PEAKS = 24  # that a status tells; neighbours are merged, and the higher one counts
FAR = 2**31  # steps

Peaks = Sequence[tuple[int, int]]


class EarlyEnds:
    """Requests of one service that ended before they were expected to, until they would have."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, int]] = []  # when it was expected, tokens that did not come

    def __repr__(self) -> str:
        return f"<EarlyEnds {self._ends}>"

    def ended(self, request: EngineRequest, step_s: float, now: float) -> None:
        """One that was expected to be of some length. ``step_s``: of each of the steps that it does not need."""
        unused = request.spec.answer_tokens(request.num_generated - 1) - request.num_generated
        if unused > 0:
            self._ends.append((now + unused * step_s, unused))

    def unused(self, now: float) -> list[int]:
        """Return the unused tokens of each early end that still counts."""
        self._ends = [end for end in self._ends if end[0] > now]
        return [tokens for _, tokens in self._ends]


def demand_of(
    requests: Collection[EngineRequest], block_size: int, early: EarlyEnds, now: float, alone_s: float = 0.0
) -> Demand | None:
    """Return the demand of one service's requests that are to decode here. None: there are none.

    ``alone_s``: of a decode step of one request. Promises that are tighter than that, or lost, do not count.
    """
    if not requests:
        return None
    unused = early.unused(now)
    error_requests, error_tokens, answer_tokens, tightest_s = -len(unused), -sum(unused), 0, inf
    futures: list[tuple[int, int]] = []
    for request in requests:
        spec, num_generated = request.spec, request.num_generated
        answer = spec.answer_tokens(num_generated)
        if spec.expected and num_generated >= spec.expected[0]:
            error_requests += 1
            error_tokens += answer - spec.expected[0]
        answer_tokens += answer
        if spec.slo_tpot_s > alone_s and not request.is_hopeless:
            tightest_s = min(tightest_s, spec.slo_tpot_s)
        futures.append((answer - num_generated, held_tokens(len(request.tokens), block_size)))
    return Demand(
        len(requests),
        sum([request.num_prompt for request in requests]),
        answer_tokens,
        tightest_s,
        tuple(_condensed(peaks_of(futures))),
        error_requests,
        error_tokens,
    )


def held_tokens(num_tokens: int, block_size: int) -> int:
    """Return the tokens that a request takes: half of its last block is unused on average (equation 1's j)."""
    return num_tokens + block_size // 2


def peaks_of(futures: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """The peaks of memory, as (step, tokens), of requests that take (steps, tokens that each holds now)."""
    peaks: list[tuple[int, int]] = []
    num_left, tokens = 0, 0
    for steps, held in sorted(futures, reverse=True):
        num_left, tokens = num_left + 1, tokens + held
        peak = (steps, tokens + num_left * steps)
        if peaks and peaks[-1][0] == steps:
            peaks[-1] = peak
        else:
            peaks.append(peak)
    peaks.reverse()
    return peaks


def with_one_more(peaks: Peaks, steps: int, held: int) -> tuple[tuple[int, int], ...]:
    """Return the peaks with one more request, of so many steps and tokens held now. None is below what is held."""
    joined = [(end, tokens + held + end) for end, tokens in peaks if end < steps]
    later = [(end, tokens) for end, tokens in peaks if end >= steps]
    joined.append((steps, (later[0][1] if later else 0) + held + steps))
    if later and later[0][0] == steps:
        del later[0]
    return (*joined, *later)


def highest_with(peaks: Peaks, steps: int, held: int) -> int:
    """The most tokens that are ever held once such a request has joined."""
    first_later = bisect_left(peaks, (steps,))
    later = [tokens for _, tokens in peaks[first_later:]]
    last = (later[0] if later else 0) + steps
    joined = max([end + tokens for end, tokens in peaks[:first_later]], default=0)
    return max(joined + held, last + held, max(later, default=0))


def _condensed(peaks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if len(peaks) <= MOST_PEAKS:
        return peaks
    size = -(-len(peaks) // MOST_PEAKS)
    groups = (list(islice(peaks, start, start + size)) for start in range(0, len(peaks), size))
    return [(group[-1][0], max([tokens for _, tokens in group])) for group in groups]
