"""Chooses among engines that a rule allows: by load, in turns, or by what is cached there."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

from router.policies.parts.candidates import least_loaded
from router.policies.policy import Dispatch
from router.view.engine_view import EngineView, RequestView

BalanceName = Literal["infaas", "round_robin", "cache_aware"]
Suits = Callable[[EngineView], bool]


class Balance(Protocol):
    """Chooses one of the engines that suit; None if none does. What it chose counts once it was `sent`."""

    def prefill_engine(self, request: RequestView, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        """The engine that computes the prompt and hands over."""

    def decode_engine(self, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        """The engine that takes over."""

    def only_engine(self, request: RequestView, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        """The engine that computes the prompt and goes on with it."""

    def sent(self, dispatch: Dispatch) -> None: ...


class ByLoad:
    """The engine with the fewest tokens in flight (INFaaS)."""

    def prefill_engine(self, request: RequestView, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        return least_loaded(engines, suits)

    def decode_engine(self, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        return least_loaded(engines, suits)

    def only_engine(self, request: RequestView, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        return least_loaded(engines, suits)

    def sent(self, dispatch: Dispatch) -> None:
        """Forget it: the view tells of load."""


class ByTurns:
    """The next engine, of those that hand over and of those that decode each in their own turn."""

    def __init__(self) -> None:
        self._last_prefill = self._last_decode = ""

    def prefill_engine(self, request: RequestView, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        return next(filter(suits, in_turn(self._last_prefill, engines)), None)

    def decode_engine(self, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        return next(filter(suits, in_turn(self._last_decode, engines)), None)

    def only_engine(self, request: RequestView, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        return next(filter(suits, in_turn(self._last_decode, engines)), None)

    def sent(self, dispatch: Dispatch) -> None:
        self._last_decode = dispatch.decode_engine
        if dispatch.prefill_engine != dispatch.decode_engine:
            self._last_prefill = dispatch.prefill_engine


class ByCache(ByLoad):
    """The engine that has most of the prompt cached, and of those with as much the least loaded one.

    An engine that takes over gets all of the request's KV: there, load decides.
    """

    def prefill_engine(self, request: RequestView, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        return _warmest(request, engines, suits)

    def only_engine(self, request: RequestView, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
        return _warmest(request, engines, suits)


MAKERS: Final[dict[BalanceName, Callable[[], Balance]]] = {
    "infaas": ByLoad,
    "round_robin": ByTurns,
    "cache_aware": ByCache,
}


def in_turn(last: str, engines: Sequence[EngineView]) -> list[EngineView]:
    """Return those behind ``last`` first. Engines may come and go between turns, so a turn is an id, not an index."""
    return sorted(engines, key=lambda engine: (engine.id <= last, engine.id))


def _warmest(request: RequestView, engines: Sequence[EngineView], suits: Suits) -> EngineView | None:
    def order(engine: EngineView) -> tuple[int, int, str]:
        return -request.cached.get(engine.id, 0), engine.num_tokens, engine.id

    return min(filter(suits, engines), key=order, default=None)
