"""Warnings that strangers can cause: a few lines a while, whatever they send. Pure."""

PERIOD_S = 10.0
MOST_A_PERIOD = 16  # lines, of different subjects


class RareWarnings:
    """Admits one line a subject and period. Times are seconds of any one monotonic clock."""

    def __init__(self, period_s: float = PERIOD_S, most: int = MOST_A_PERIOD) -> None:
        self._period_s = period_s
        self._most = most
        self._ends_at: float | None = None
        self._told: set[str] = set()
        self._num_silent = 0

    def admit(self, subject: str, now: float) -> int | None:
        """Decide whether to write a warning. None: say nothing. Else how many warnings have been left out since the
        last line.
        """
        if self._ends_at is None or now >= self._ends_at:
            self._told.clear()
            self._ends_at = now + self._period_s
        if subject in self._told or len(self._told) >= self._most:
            self._num_silent += 1
            return None
        self._told.add(subject)
        num_silent, self._num_silent = self._num_silent, 0
        return num_silent
