"""How much engines slow each other, as found from answers alone."""

from collections.abc import Sequence
from random import Random

import pytest

from bench.fidelity.overheads import ANSWER, Sharing, measure_sharing
from bench.load.results.outcome import Outcome
from simulation.loads.trace_request import TraceRequest

PROMPT_S, STEP_S = 0.5, 0.04
SLOWER = Sharing(decode=1.3, prefill=1.2)


class TwoEngines:
    """Answers as a prefill and a decode engine of one machine would give them. ``apart``: they never meet."""

    def __init__(self, *, apart: bool = True) -> None:
        self._apart = apart

    def answers(self, requests: Sequence[TraceRequest], seed: int) -> list[Outcome]:
        long = [one for one in requests if one.num_output > 1]
        prompt_s = PROMPT_S * (SLOWER.prefill if long else 1.0)
        covered = [(one.at_s, one.at_s + prompt_s) for one in requests if one.num_output == 1]
        last_s = self._last_s(covered) if long else 0.0
        return [
            self._answer(number, one, one.at_s + prompt_s)
            if one.num_output == 1
            else self._answer(number, one, 0.1, last_s)
            for number, one in enumerate(requests)
        ]

    def _last_s(self, covered: Sequence[tuple[float, float]]) -> float:
        """When a decode of `ANSWER` tokens is done that is slower while a prompt runs."""
        now, left_s, tick_s = 0.1, (ANSWER - 1) * STEP_S, 1e-3
        while left_s > 0:
            is_beside = any(begin <= now < end for begin, end in covered)
            left_s -= tick_s / (SLOWER.decode if is_beside else 1.0)
            now += tick_s
        return now

    def _answer(self, number: int, one: TraceRequest, first_s: float, last_s: float | None = None) -> Outcome:
        headers = {"prefill": "prefill" if self._apart else "decode", "decode": "decode"}
        times = {"first_s": first_s, "last_s": first_s if last_s is None else last_s}
        return Outcome(number, "chat", *[one.at_s] * 3, 99.0, one.num_input, one.num_output, **times, headers=headers)


def test_the_slowdown_of_both_is_found_again():
    found = measure_sharing(TwoEngines(), Random(0))  # type: ignore[arg-type]
    assert found.decode == pytest.approx(SLOWER.decode, abs=0.02)
    assert found.prefill == pytest.approx(SLOWER.prefill, abs=0.02)


def test_engines_that_never_meet_are_not_slower():
    assert measure_sharing(TwoEngines(apart=False), Random(0)) == Sharing()  # type: ignore[arg-type]
