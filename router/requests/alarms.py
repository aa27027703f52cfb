"""Keeps the time at which each request needs attention, if nothing happens before."""

import heapq
from math import inf


class Alarms:
    """One alarm an id. It can only be moved forward, and so may go off early: who is woken sets the next one."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # may hold more: what was moved or cleared is skipped when it comes up

    def __repr__(self) -> str:
        return f"<Alarms {len(self._due)}, next at {self.next()}>"

    def __contains__(self, id_: str) -> bool:
        return id_ in self._due

    def next(self) -> float | None:
        """When to call `pop`, at the latest."""
        return self._heap[0][0] if self._heap else None

    def set(self, id_: str, due: float) -> None:
        """Wake it at ``due`` at the latest."""
        if due < self._due.get(id_, inf):
            self._due[id_] = due
            heapq.heappush(self._heap, (due, id_))

    def clear(self, id_: str) -> None:
        self._due.pop(id_, None)

    def pop(self, now: float) -> list[str]:
        """Remove and return whose alarms go off, each once, earliest first."""
        woken = []
        while self._heap and self._heap[0][0] <= now:
            due, id_ = heapq.heappop(self._heap)
            if self._due.get(id_) == due:
                del self._due[id_]
                woken.append(id_)
        return woken
