"""Gives engines of small weight the share of requests that is theirs, and no more: canaries, whatever the policy.

A service's engines of the largest weight are dispatched to as the policy wants. One of less weight gets a request when
its count has fallen behind its share of what each of those got, and then before them; otherwise it gets none, unless
no other engine is there.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

HALVED_AT: Final = 4096  # dispatches to one engine, after which all counts are halved: what was long ago counts less


class Shares:
    """Counts dispatches. ``weights``: of engines, where they are not 1."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = {engine: weight for engine, weight in weights.items() if weight != 1.0}
        self._counts: Counter[str] = Counter()
        self.are_even: Final = not self._weights

    def __repr__(self) -> str:
        return f"<Shares {self._weights} {dict(self._counts)}>"

    def dispatched(self, engine: str) -> None:
        """One more request went there."""
        if self.are_even:
            return
        self._counts[engine] += 1
        if self._counts[engine] >= HALVED_AT:
            self._counts = Counter({one: count // 2 for one, count in self._counts.items()})

    def trials(self, engines: Collection[str]) -> list[set[str]]:
        """Return which of these engines to leave out of a decision: at first, and if that finds none, after that."""
        largest = max([self._weight(engine) for engine in engines], default=1.0)
        full = [engine for engine in engines if self._weight(engine) == largest]
        light = {engine for engine in engines if self._weight(engine) < largest}
        if not light:
            return [set()]
        mean = sum([self._counts[engine] for engine in full]) / len(full)
        owed = [one for one in light if self._counts[one] + 1 <= self._weight(one) / largest * mean]
        return [*([set(engines) - set(owed)] if owed else []), light]

    def _weight(self, engine: str) -> float:
        return self._weights.get(engine, 1.0)
