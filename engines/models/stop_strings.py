"""Stop strings in a stream of text."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checked:
    """Text that may be shown now, and the stop string that ended it."""

    text: str
    stop: str | None = None


class StopChecker:
    """Ends a text at the stop string that is complete first, and holds back what may become one.

    The outcome does not depend on how the text is cut into pieces. Of stop strings that end at the same place, the
    longest counts.
    """

    def __init__(self, stops: Sequence[str], include_stop: bool = False) -> None:
        """``stops`` are not empty strings; ``include_stop`` shows the stop string too."""
        self._stops = tuple(stops)
        self._beginnings = frozenset(stop[:length] for stop in stops for length in range(1, len(stop)))
        self._longest = max((len(beginning) for beginning in self._beginnings), default=0)
        self._include_stop = include_stop
        self._held = ""

    def feed(self, text: str) -> Checked:
        """Feed nothing more after a stop string was found."""
        text = self._held + text
        found = self._first_stop(text)
        if found is not None:
            self._held = ""
            start, stop = found
            return Checked(text[: start + len(stop) if self._include_stop else start], stop)
        cut = self._beginning_of_stop(text)
        self._held = text[cut:]
        return Checked(text[:cut])

    def finish(self) -> str:
        """What was held back: no stop string came of it."""
        held, self._held = self._held, ""
        return held

    def _first_stop(self, text: str) -> tuple[int, str] | None:
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if not found:
            return None
        _, start, stop = min(found)
        return start, stop

    def _beginning_of_stop(self, text: str) -> int:
        """Where the longest end of the text starts that begins a stop string."""
        for start in range(max(0, len(text) - self._longest), len(text)):
            if text[start:] in self._beginnings:
                return start
        return len(text)
