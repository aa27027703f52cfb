"""Decides when a process publishes its status: at once if it has news, not too often, and once a heartbeat at least."""

from math import inf


class StatusPace:
    """Decides when a status is published. ``gap_s``: no two statuses that may wait are closer; 0: none waits. Pure."""

    def __init__(self, heartbeat_s: float, gap_s: float) -> None:
        self.due_at: float | None = None  # the next status; None: before `start`
        self.is_put_off = False  # there is news, which the next status will tell
        self._heartbeat_s = heartbeat_s
        self._gap_s = gap_s
        self._soonest_at = -inf

    def start(self, now: float) -> None:
        """Begin to have heartbeats."""
        self.due_at = now

    def published(self, now: float) -> None:
        """A status goes out."""
        if self.due_at is not None:
            self.due_at, self._soonest_at = now + self._heartbeat_s, now + self._gap_s
        self.is_put_off = False

    def puts_off(self, now: float) -> bool:
        """Return whether news has to wait. It is told when the next status is due, which is as soon as it may be."""
        if now >= self._soonest_at:
            return False
        if not self.is_put_off and self.due_at is not None:
            self.due_at, self.is_put_off = min(self.due_at, self._soonest_at), True
        return True
