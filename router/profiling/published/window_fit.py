"""Costs fitted to what others measured: means over iterations, and times to first tokens.

Nobody designed that load, so it tells less than `mesh profile --url` does. Prompts take their line from first tokens
that came while little else was there. Steps take theirs from how long answers took at how many at a time, less the
tokens of prompts that were computed beside them. What a request takes besides its iterations is what is left of its
first token when an iteration's fixed part is off.
"""

import statistics
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from engines.costs.fitting import robust_fit
from engines.costs.measuring import DecodePoint, Point, PrefillPoint
from engines.costs.step_cost import StepCost
from mesh.wire.status import DecodeCost, PrefillCost
from router.profiling.published.seen import First, FormatError, Published, Window
from router.profiling.terms import Terms, unsure

RowT = TypeVar("RowT", First, Window)

QUIET = 0.5  # requests that were there before, at most
FEWEST = 3
ROUNDS = 8  # of the prompts' line and the steps' line in turns, as each takes a part from the other
LEAST_PART = 0.3  # of an iteration that its decodes take at least
EVERY = 5  # one in so many is held out
HELD_BACK = 2 * EVERY  # where there are fewer, all are fitted to


def fit_published(published: Published) -> Terms:
    """Raise `FormatError` if it tells too little."""
    known = [one for one in published.firsts if one.num_input > 0]  # others' servers did not count
    firsts, windows = _quiet(known), [one for one in published.windows if one.step_s > 0]
    if not firsts or not windows:
        raise FormatError(
            f"{published.about}: too little to fit costs to; it needs answers of two tokens or more, "
            "and lengths of prompts"
        )
    fit_firsts, judge_firsts = _split(firsts)
    fit_windows, judge_windows = _split(windows)
    token_s, fixed_s = 0.0, min(one.step_s for one in windows)
    for _ in range(ROUNDS):
        intercept_s, token_s = _line(fit_firsts, fixed_s)
        decode = _steps(fit_windows, token_s)
        fixed_s = decode.fixed_s + decode.per_request_s
    cost = StepCost(PrefillCost(min(intercept_s, fixed_s), token_s), decode)
    request_s = max(0.0, intercept_s - fixed_s)
    times = [
        _times(firsts_, windows_, token_s, request_s)
        for firsts_, windows_ in ((fit_firsts, fit_windows), (judge_firsts, judge_windows))
    ]
    return Terms(cost, request_s, None, 0, times[0], times[1], _doubts(fit_firsts, fit_windows, cost, request_s))


def is_loaded(published: Published) -> bool:
    """Say whether no first token came while the server was quiet: prompts then seem dearer than they are."""
    return min(one.num_before for one in published.firsts if one.num_input > 0) > QUIET


def _quiet(firsts: Sequence[First]) -> list[First]:
    """Those before which nobody was there, or else the quarter with the fewest."""
    quiet = [one for one in firsts if one.num_before <= QUIET]
    if len(quiet) >= max(1, min(FEWEST, len(firsts) // EVERY)):
        return quiet
    ordered = sorted(firsts, key=lambda one: one.num_before)
    return ordered[: max(FEWEST, len(ordered) // 4)]


def _split(rows: Sequence[RowT]) -> tuple[list[RowT], list[RowT]]:
    if len(rows) < HELD_BACK:
        return list(rows), []
    return [row for index, row in enumerate(rows) if index % EVERY], list(rows[::EVERY])


def _line(firsts: Sequence[First], fixed_s: float) -> tuple[float, float]:
    """(fixed, per token). Where all prompts are of one length, the fixed part is an iteration's."""
    lengths = [one.num_input for one in firsts]
    if max(lengths) >= 1.5 * min(lengths) and len(firsts) >= FEWEST:
        intercept_s, token_s = robust_fit([(1.0, length) for length in lengths], [one.ttft_s for one in firsts])
        return intercept_s, token_s
    left_s = statistics.median((one.ttft_s - fixed_s) / one.num_input for one in firsts)
    return fixed_s, max(0.0, left_s)


def _steps(windows: Sequence[Window], token_s: float) -> DecodeCost:
    alone_s = [_alone_s(one, token_s) for one in windows]
    rows = [(1.0, one.num_running, one.context_tokens) for one in windows]
    varied = [len({round(row[column], 1) for row in rows}) for column in (1, 2)]
    num_terms = 1 if varied[0] < 2 else 2 if len(windows) < 8 or varied[1] < 4 else 3
    terms = robust_fit([row[:num_terms] for row in rows], alone_s)
    fixed_s, per_request_s, per_context_token_s = [*terms, 0.0, 0.0][:3]
    return DecodeCost(fixed_s, per_request_s, per_context_token_s)


def _alone_s(one: Window, token_s: float) -> float:
    """Of its iteration, what prompts do not take."""
    return max(LEAST_PART * one.step_s, one.step_s - token_s * one.prompt_tokens)


def _times(firsts: Sequence[First], windows: Sequence[Window], token_s: float, request_s: float) -> dict[Point, float]:
    found: dict[Point, list[float]] = {}
    for first in firsts:
        found.setdefault(PrefillPoint(round(first.num_input)), []).append(max(1e-6, first.ttft_s - request_s))
    for window in windows:
        num = max(1, round(window.num_running))
        point = DecodePoint((max(1, round(window.context_tokens / num / 16) * 16),) * num)
        found.setdefault(point, []).append(_alone_s(window, token_s))
    return {point: statistics.median(times_s) for point, times_s in found.items()}


def _doubts(firsts: Sequence[First], windows: Sequence[Window], cost: StepCost, request_s: float) -> dict[str, float]:
    prefill, decode = cost.prefill, cost.decode
    rows = np.array([(1.0, one.num_input) for one in firsts])
    ttfts = np.array([one.ttft_s for one in firsts])
    of_firsts = unsure(rows, ttfts, np.array([prefill.fixed_s + request_s, prefill.per_token_s]))
    steps = np.array([(1.0, one.num_running) for one in windows])
    alone_s = np.array([_alone_s(one, prefill.per_token_s) for one in windows])
    of_steps = unsure(steps, alone_s, np.array([decode.fixed_s, decode.per_request_s]))
    names = ("first token", "per token", "step", "per request")
    return dict(zip(names, [*of_firsts, *of_steps], strict=True))
