"""The discrete-event loop: a virtual clock, events in order of time and then of scheduling, named random streams."""

import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

Action = Callable[..., object]


class Kernel:
    """Deterministic: the same seed and the same calls give the same run. ``on_event`` is called after each event."""

    __slots__ = ("_events", "_num_scheduled", "_seed", "_soon", "_stopped", "now", "on_event")

    def __init__(self, seed: int = 0, now: float = 0.0) -> None:
        self.now = now
        self.on_event: Callable[[], None] | None = None
        self._seed = seed
        self._events: list[tuple[float, int, Action, tuple[Any, ...]]] = []
        self._soon: deque[tuple[Action, tuple[Any, ...]]] = deque()  # due now, after those of ``_events`` that are
        self._num_scheduled = 0
        self._stopped = False

    def __repr__(self) -> str:
        return f"<Kernel at {self.now:.6f} s, {len(self._events) + len(self._soon)} events ahead>"

    @property
    def num_events(self) -> int:
        """The number of events that have happened."""
        return self._num_scheduled - len(self._events) - len(self._soon)

    def random(self, component: str) -> Random:
        """The component's own stream: what others draw does not change it."""
        return Random(f"{self._seed}/{component}")

    def at(self, when: float, action: Action, *arguments: Any) -> None:
        """Call ``action(*arguments)`` at ``when``; at once, after what is due already, if that has passed."""
        self._num_scheduled += 1
        if when > self.now:
            heapq.heappush(self._events, (when, self._num_scheduled, action, arguments))
        else:
            self._soon.append((action, arguments))

    def after(self, delay_s: float, action: Action, *arguments: Any) -> None:
        self.at(self.now + delay_s, action, *arguments)

    def stop(self) -> None:
        """Let `run` return after the present event; if it does not run, the next time at once."""
        self._stopped = True

    def run(self, until: float = float("inf")) -> None:
        """Pass through events until none is due before ``until``, or `stop` was called."""
        events, soon, on_event = self._events, self._soon, self.on_event
        pop, pop_soon = heapq.heappop, soon.popleft
        while not self._stopped:
            if soon and (not events or events[0][0] > self.now):
                if self.now > until:
                    break
                action, arguments = pop_soon()
            elif events and events[0][0] <= until:
                self.now, _, action, arguments = pop(events)
            else:
                break
            action(*arguments)
            if on_event is not None:
                on_event()
        self._stopped = False
