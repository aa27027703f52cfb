"""Decides which engine gets which batch, and when to look again (SCLS, sections 4.5 and 4.6)."""

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Generic, TypeVar

B = TypeVar("B")


class Loads(Generic[B]):
    """Predicted seconds of the batches that were sent to each engine and are not done.

    A batch takes its own estimate along when it is done: what was predicted wrongly of it is forgotten with it.
    """

    def __init__(self) -> None:
        self._held: dict[B, tuple[str, float]] = {}
        self._of: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Loads { {engine: round(load_s, 3) for engine, load_s in self._of.items()} }>"

    def of(self, engine: str) -> float:
        return self._of.get(engine, 0.0)

    def add(self, batch: B, engine: str, serving_s: float) -> None:
        """Add a batch to an engine's load. Equation 11."""
        self._held[batch] = engine, serving_s
        self._of[engine] = self.of(engine) + serving_s

    def give_back(self, batch: B) -> None:
        """Take a batch off an engine's load: it is done, or will not be. Once is enough."""
        held = self._held.pop(batch, None)
        if held is None:
            return
        engine, serving_s = held
        self._of[engine] -= serving_s
        if not any(other == engine for other, _ in self._held.values()):
            del self._of[engine]  # and with it what rounding left


def offload_max_min(
    serving_s: Mapping[B, Callable[[str], float]], engines: Collection[str], loads: Loads[B]
) -> dict[B, str]:
    """Each batch to the least loaded engine, the longest first; ``loads`` grow by them.

    ``serving_s`` of a batch by engine: infinite if it cannot run there. How long a batch is its fastest engine says.
    """
    chosen: dict[B, str] = {}
    for batch in sorted(serving_s, key=lambda batch: -min(map(serving_s[batch], engines))):
        taken_s = {engine: serving_s[batch](engine) for engine in engines}
        engine = min(engines, key=lambda engine: (taken_s[engine] == inf, loads.of(engine), engine))
        loads.add(batch, engine, taken_s[engine])
        chosen[batch] = engine
    return chosen


def interval_s(loads: Loads[B], engines: Collection[str], factor: float, floor_s: float) -> float:
    """Return the seconds until the next batches are formed (equation 12): ``max(lambda min_w load(w), Gamma)``."""
    return max(factor * min(map(loads.of, engines), default=0.0), floor_s)
