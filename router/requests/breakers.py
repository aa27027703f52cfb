"""Circuit breakers: which engines get no requests for a while, because they failed those that they had. Pure.

A breaker is closed as long as its engine does well. It opens when the engine fails several times within a window, and
at least as often as it succeeds: steps that fail, silence, streams that break, hand-overs that fail, deaths. Requests
that clients got wrong and back pressure (a full queue, no memory, no slack, draining) are no failures. Failures that
come together have one cause and count as one. After a pause the breaker is half-open: one request is let through, and
what becomes of it decides whether the breaker closes, or opens again for twice as long.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

MAX_OUTCOMES = 256  # remembered of one engine


class BreakerState(StrEnum):
    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """Limits at which a breaker opens, and for how long."""

    window_s: float = 20.0
    num_failures: int = 4  # within the window
    burst_s: float = 0.25  # failures that come closer together count as one
    pause_s: float = 1.0  # doubles each time that the request let through fails, too
    max_pause_s: float = 30.0


class _Outcome(NamedTuple):
    at: float
    request: str | None  # None: the engine's death
    has_failed: bool


@dataclass(frozen=True, slots=True)
class _Pause:
    until: float
    length_s: float
    trial: str | None = None  # the request that was let through


class Breaker:
    """One engine's, over all its incarnations: one that dies again and again is left alone, too."""

    def __init__(self, limits: BreakerLimits) -> None:
        self._limits = limits
        self._outcomes: deque[_Outcome] = deque(maxlen=MAX_OUTCOMES)
        self._pause: _Pause | None = None  # None: closed
        self.failed_at = float("-inf")
        self.num_failures = 0
        self.num_openings = 0

    def __repr__(self) -> str:
        return f"<Breaker {self._pause or 'closed'} failures={self.num_failures}>"

    @property
    def is_closed(self) -> bool:
        return self._pause is None

    def state(self, now: float) -> BreakerState:
        if self._pause is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self._pause.until else BreakerState.HALF_OPEN

    def admits(self, now: float) -> bool:
        """Return whether a request may be sent: any, or the one that tries a half-open breaker."""
        return self._pause is None or (now >= self._pause.until and self._pause.trial is None)

    def sent(self, request: str, now: float) -> None:
        """A request was sent to the engine."""
        if self._pause is not None and self.admits(now):
            self._pause = replace(self._pause, trial=request)

    def succeeded(self, request: str, now: float) -> None:
        self._outcomes.append(_Outcome(now, request, has_failed=False))
        if self._pause is not None and self._pause.trial == request:
            self._close()

    def failed(self, request: str | None, now: float) -> None:
        """Count a failure. ``request``: which one it failed; None: it died."""
        self.failed_at = now
        self.num_failures += 1
        self._outcomes.append(_Outcome(now, request, has_failed=True))
        if self._pause is None:
            if self._is_failing(now):
                self._open(self._limits.pause_s, now)
        elif now >= self._pause.until:
            self._open(min(2 * self._pause.length_s, self._limits.max_pause_s), now)

    def left(self, request: str) -> None:
        """The request ended there for reasons that say nothing of the engine: another one may try it."""
        if self._pause is not None and self._pause.trial == request:
            self._pause = replace(self._pause, trial=None)

    def forgive(self, request: str, now: float) -> None:
        """Note that a request's failure was its own doing."""
        if not any(one.request == request for one in self._outcomes):
            return
        self._outcomes = deque((one for one in self._outcomes if one.request != request), MAX_OUTCOMES)
        if self._pause is not None and not self._is_failing(now):
            self._close()

    def _open(self, length_s: float, now: float) -> None:
        self._pause = _Pause(now + length_s, length_s)
        self.num_openings += 1

    def _close(self) -> None:
        self._pause = None
        self._outcomes.clear()

    def _is_failing(self, now: float) -> bool:
        recent = [one for one in self._outcomes if one.at > now - self._limits.window_s]
        failures = [one.at for one in recent if one.has_failed]
        num_bursts = _num_bursts(failures, self._limits.burst_s)
        return num_bursts >= self._limits.num_failures and 2 * len(failures) >= len(recent)


class Breakers:
    """The breakers of all engines that one gateway sends to."""

    def __init__(self, limits: BreakerLimits = BreakerLimits()) -> None:
        self._limits = limits
        self._of: dict[str, Breaker] = {}
        self._tripped: set[str] = set()  # engines whose breakers are not closed

    def __repr__(self) -> str:
        return f"<Breakers {self._of}>"

    @property
    def all_closed(self) -> bool:
        return not self._tripped

    def known(self) -> dict[str, Breaker]:
        """Return the breakers of the engines that anything is known of, in the order of their names."""
        return dict(sorted(self._of.items()))

    def states(self, now: float) -> dict[str, BreakerState]:
        """Return the states of those that are not closed."""
        return {engine: self._of[engine].state(now) for engine in sorted(self._tripped)}

    def blocked(self, serving: Collection[str], now: float) -> set[str]:
        """Return the serving engines that get nothing now; never all: then the one that failed first gets it."""
        blocked = {engine for engine in self._tripped.intersection(serving) if not self._of[engine].admits(now)}
        if blocked and len(blocked) == len(serving):
            blocked.remove(min(blocked, key=lambda engine: (self._of[engine].failed_at, engine)))
        return blocked

    def sent(self, request: str, engines: Iterable[str], now: float) -> None:
        """A request was sent that these engines are to compute."""
        for engine in self._tripped.intersection(engines):
            self._of[engine].sent(request, now)

    def succeeded(self, request: str, engine: str, now: float) -> None:
        self._get(engine).succeeded(request, now)
        self._note(engine)

    def failed(self, request: str | None, engines: Iterable[str], now: float) -> None:
        for engine in engines:
            self._get(engine).failed(request, now)
            self._note(engine)

    def left(self, request: str, engines: Iterable[str]) -> None:
        """It is not with these engines any more."""
        for engine in self._tripped.intersection(engines):
            self._of[engine].left(request)

    def forgive(self, request: str, now: float) -> None:
        for engine, breaker in self._of.items():
            breaker.forgive(request, now)
            self._note(engine)

    def _get(self, engine: str) -> Breaker:
        breaker = self._of.get(engine)
        if breaker is None:
            breaker = self._of[engine] = Breaker(self._limits)
        return breaker

    def _note(self, engine: str) -> None:
        if self._of[engine].is_closed:
            self._tripped.discard(engine)
        else:
            self._tripped.add(engine)


def _num_bursts(moments: Iterable[float], burst_s: float) -> int:
    """Of moments in order: how many stand further apart than ``burst_s`` from the first of their burst."""
    count, first = 0, float("-inf")
    for at in moments:
        if at - first >= burst_s:
            count, first = count + 1, at
    return count
