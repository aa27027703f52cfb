"""Measures how long decodes wait from one token to the next: steps, what prefills add, what the shell takes.

A step that accepts drafts counts as so many steps as each of its decodes got tokens, on average.
"""

STEPS = 8  # about how many the mean is of


class Pace:
    """An exponential mean over steps with decodes that followed each other without a pause."""

    def __init__(self) -> None:
        self.seconds = 0.0  # 0: nothing decodes
        self._last_at: float | None = None

    def stepped(self, now: float, num_steps: float = 1) -> None:
        """The last of ``num_steps`` such steps ended now."""
        if self._last_at is not None:
            mean_s = (now - self._last_at) / num_steps
            kept = (1 - 1 / STEPS) ** num_steps if self.seconds else 0.0
            self.seconds = kept * self.seconds + (1 - kept) * mean_s
        self._last_at = now

    def pause(self) -> None:
        """Note that nothing decodes now."""
        self.seconds, self._last_at = 0.0, None
