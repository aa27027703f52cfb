"""Overload: which of the requests that wait are refused at once, because not all can make it. Pure.

What engines will manage is not predicted but seen: the prompt tokens a second that leave the queue while many wait. At
that pace as many requests as possible are kept that can all make it (`router.policies.parts.feasible`); the others
would wait for their deadlines in vain, so their clients are told now and may go elsewhere. The pace is taken to be
better than it was seen: only the hopeless are refused.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mesh.wire.control import Role
from router.generation import Overloaded
from router.policies.parts.feasible import split_feasible
from router.view.cluster_view import ClusterView
from router.view.engine_view import RequestView

MIN_RETRY_AFTER_S, MAX_RETRY_AFTER_S = 1.0, 60.0
LEAST_WAITING = 16  # fewer are no overload
LEAST_BUSY_S = 2.0  # of so many waiting, before a pace is known
MEMORY_S = 20.0  # what was seen longer ago than this counts half
OPTIMISM = 1.25  # the pace may be so many times better than it was


@dataclass(slots=True)
class _Pace:
    """Prompt tokens that left the queue in the time when many waited."""

    num_tokens: float = 0.0
    busy_s: float = 0.0
    seen_at: float = 0.0
    is_busy: bool = False

    def note(self, num_tokens: int, num_waiting: int, now: float) -> None:
        if self.is_busy:
            self.num_tokens += num_tokens
            self.busy_s += now - self.seen_at
        if self.busy_s > MEMORY_S:
            self.num_tokens, self.busy_s = self.num_tokens / 2, self.busy_s / 2
        self.seen_at, self.is_busy = now, num_waiting >= LEAST_WAITING

    @property
    def tokens_per_s(self) -> float | None:
        """Return the prompt tokens a second that leave the queue; None: not known."""
        return self.num_tokens / self.busy_s if self.busy_s >= LEAST_BUSY_S and self.num_tokens else None


class Shedding:
    """Sheds requests of one gateway, service by service."""

    def __init__(self) -> None:
        self._paces: defaultdict[str, _Pace] = defaultdict(_Pace)

    def __repr__(self) -> str:
        return f"<Shedding {dict(self._paces)}>"

    def dispatched(self, request: RequestView, num_waiting: int, now: float) -> None:
        """A request left the queue, in which so many of its service wait."""
        self._paces[request.service].note(request.num_tokens, num_waiting, now)

    def hopeless(self, waiting: Sequence[RequestView], now: float) -> list[RequestView]:
        """Return those of one service's waiting requests, the newest included, that will not make it."""
        pace = self._paces[waiting[0].service]
        pace.note(0, len(waiting), now)
        if not pace.is_busy or (tokens_per_s := pace.tokens_per_s) is None:
            return []
        tokens = [float(request.num_tokens) for request in waiting]
        return split_feasible(waiting, tokens, OPTIMISM * tokens_per_s, now)[1]


def overloaded(view: ClusterView, service: str, reason: str, now: float) -> Overloaded:
    """Make a refusal, with a hint when to come back: when the first engine that prefills will have nothing queued."""
    serving = view.serving(service)
    prefilling = [engine for engine in serving if engine.role is not Role.DECODE] or serving
    backlog_s = min((engine.wait_s(service, now) for engine in prefilling), default=0.0)
    return Overloaded(reason, min(max(backlog_s, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S))
