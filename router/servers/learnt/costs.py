"""Learns what a server's prefills and decode steps cost from what its clients see: first tokens, and paces of answers.

Nothing is known at first, not even whether it computes on a laptop or on eight GPUs. The first measurements are fitted
as `mesh profile` fits steps (`engines.costs.fitting`), again when there are twice as many; in between, a filter follows
each of them (`engines.costs.learning`), as on our own engines. Measurements of like sizes are kept together, the median
of the newest of each, so that a fit takes milliseconds however long a server is in use.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from engines.costs.fitting import DecodeSample, PrefillSample, fit_decode_line, fit_prefill_line
from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost, StepLoad
from mesh.wire.status import DecodeCost, PrefillCost

GUESS: Final = StepCost(PrefillCost(0.05, 1e-4), DecodeCost(0.02, 5e-4))  # one mid-size GPU and an 8B model, roughly
FIRST_FIT: Final = 4  # measurements of a kind
NEXT_FIT: Final = 2.0  # times as many as at the last one
LAST_FIT: Final = 512  # after which each so many measurements
STEPS_OF_SIZE: Final = 2  # sizes in a doubling that are kept apart
NEWEST: Final = 7  # measurements of a size
SHORTEST_S: Final = 1e-6


@dataclass(slots=True)
class _Sizes:
    """The newest measurements by size. Of each size: its two numbers, and what it took."""

    by_size: dict[tuple[int, int], deque[tuple[int, int, float]]] = field(default_factory=dict)
    num_taken: int = 0
    fits_at: float = FIRST_FIT

    def add(self, first: int, second: int, elapsed_s: float) -> bool:
        """Return whether it is time for a fit."""
        kept = self.by_size.setdefault((_size(first), second.bit_length()), deque(maxlen=NEWEST))
        kept.append((first, second, elapsed_s))
        self.num_taken += 1
        if self.num_taken < self.fits_at:
            return False
        self.fits_at = min(self.num_taken * NEXT_FIT, self.num_taken + LAST_FIT)
        return True

    def medians(self) -> list[tuple[int, int, float]]:
        return [_median(kept) for kept in self.by_size.values()]


class ServerCosts:
    """What one service costs on one server. Lengths are in the tokens that the gateway counts, whatever these are.

    ``initial``: from a profile, which is only corrected from then on; None: nothing is known.
    """

    def __init__(self, initial: StepCost | None = None) -> None:
        self._is_fitted = initial is None
        self._learnt = LearntCost(initial or GUESS)
        self._prefills, self._decodes = _Sizes(), _Sizes()
        self._has_prefill = self._has_decode = initial is not None

    def __repr__(self) -> str:
        return f"<ServerCosts {self._learnt!r}>"

    @property
    def is_learnt(self) -> bool:
        """Return whether both costs come from measurements or a profile: before that they are guesses."""
        return self._has_prefill and self._has_decode

    @property
    def current(self) -> StepCost:
        return self._learnt.current

    @property
    def prefill_error(self) -> float | None:
        """90th percentile of |measured / predicted - 1| of late; None: too few."""
        return self._learnt.prefill_error if self._has_prefill else None

    @property
    def decode_error(self) -> float | None:
        """The same of decodes."""
        return self._learnt.decode_error if self._has_decode else None

    def first_token(
        self, num_tokens: int, num_cached: int, elapsed_s: float, num_running: int = 0, context_tokens: int = 0
    ) -> None:
        """A prompt of ``num_tokens`` had its first token ``elapsed_s`` after it could begin, beside so many decodes."""
        if elapsed_s < SHORTEST_S:
            return
        new = max(1, num_tokens - num_cached)
        self._learnt.observe(StepLoad([(new, num_cached)], num_running, context_tokens), elapsed_s)
        if self._prefills.add(new, num_cached, elapsed_s) and self._is_fitted:
            was_learnt, self._has_prefill = self.is_learnt, True
            self._refit(was_learnt)

    def decoded(self, num_tokens: int, elapsed_s: float, num_running: int, context_tokens: int) -> None:
        """One of ``num_running`` requests, with so much context in all, had ``num_tokens`` more in ``elapsed_s``."""
        step_s = elapsed_s / max(1, num_tokens)
        if step_s < SHORTEST_S or num_running < 1:
            return
        self._learnt.observe(StepLoad((), num_running, context_tokens), step_s)
        if self._decodes.add(num_running, context_tokens, step_s) and self._is_fitted:
            was_learnt, self._has_decode = self.is_learnt, True
            self._refit(was_learnt)

    def _refit(self, was_learnt: bool) -> None:
        """Errors of guesses are forgotten with them."""
        before, errors = self._learnt.current, self._learnt
        prefill = fit_prefill_line(_prefills(self._prefills.medians())) if self._has_prefill else before.prefill
        decode = fit_decode_line(_decodes(self._decodes.medians())) if self._has_decode else before.decode
        self._learnt = LearntCost(StepCost(prefill, decode))
        if was_learnt:
            self._learnt.recall(errors)


def _prefills(medians: Sequence[tuple[int, int, float]]) -> list[PrefillSample]:
    return [PrefillSample(new, cached, elapsed_s) for new, cached, elapsed_s in medians]


def _decodes(medians: Sequence[tuple[int, int, float]]) -> list[DecodeSample]:
    return [DecodeSample(num_requests, context, elapsed_s) for num_requests, context, elapsed_s in medians]


def _size(number: int) -> int:
    """Equal for numbers within half a doubling; small ones have one each."""
    shift = max(0, number.bit_length() - STEPS_OF_SIZE)
    return STEPS_OF_SIZE * shift + (number >> shift)


def _median(kept: Sequence[tuple[int, int, float]]) -> tuple[int, int, float]:
    first, second, elapsed_s = (statistics.median(column) for column in zip(*kept, strict=True))
    return round(first), round(second), elapsed_s
