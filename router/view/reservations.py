"""Keeps what this gateway dispatched and engines have not yet counted in a status (optimistic reservations)."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from router.view.engine_work import Reservation


@dataclass(slots=True)
class _Held:
    """``counted_from_seq``: the engine's first status that counts it; None until the engine said so."""

    reservation: Reservation
    counted_from_seq: int | None = None

    def is_counted(self, seq: int) -> bool:
        return self.counted_from_seq is not None and seq >= self.counted_from_seq


class Reservations:
    """What was dispatched, by engine and request. The prefill engine says in `Accepted` from which of its statuses on
    it counts the request.

    The decode engine is asked by the prefill engine, late and out of sight: its part is held until it sends tokens, or
    until the status after that where statuses may wait.
    """

    def __init__(self) -> None:
        self._by_engine: defaultdict[str, dict[str, _Held]] = defaultdict(dict)
        self._engines: defaultdict[str, set[str]] = defaultdict(set)  # by request

    def __repr__(self) -> str:
        return f"<Reservations { ({engine: sorted(held) for engine, held in self._by_engine.items() if held}) }>"

    def of(self, engine: str) -> list[Reservation]:
        held = self._by_engine.get(engine)
        return [one.reservation for one in held.values()] if held else []

    def add(self, reservation: Reservation) -> None:
        self._by_engine[reservation.engine][reservation.request] = _Held(reservation)
        self._engines[reservation.request].add(reservation.engine)

    def accept(self, request: str, engine: str, status_seq: int, known_seq: int | None) -> None:
        """Note that an engine accepted a request. ``engine`` owns the request, and counts it from status ``status_seq``
        on; ``known_seq`` is its last one.
        """
        held = self._by_engine.get(engine, {}).get(request)
        if held is None:
            return
        if known_seq is not None and known_seq >= status_seq:
            self._drop(request, engine)
        else:
            held.counted_from_seq = status_seq

    def settle(self, engine: str, seq: int) -> None:
        """Status ``seq`` of the engine is known: drop what it counts."""
        held = self._by_engine.get(engine)
        if not held:
            return
        for request in [request for request, one in held.items() if one.is_counted(seq)]:
            self._drop(request, engine)

    def count_from_next(self, request: str, seq_of: Callable[[str], int | None]) -> None:
        """The engines that have the request count it in the statuses that follow their last ones (``seq_of``)."""
        for engine in self._engines.get(request, ()):
            held, seq = self._by_engine[engine][request], seq_of(engine)
            if held.counted_from_seq is None and seq is not None:
                held.counted_from_seq = seq + 1

    def release(self, request: str) -> set[str]:
        """The request is not where it was sent, or beyond doubt counted there. Returns where it was held."""
        engines = set(self._engines.get(request, ()))
        for engine in engines:
            self._drop(request, engine)
        return engines

    def drop(self, engine: str) -> None:
        """The engine is gone."""
        for request in list(self._by_engine.get(engine, ())):
            self._drop(request, engine)

    def _drop(self, request: str, engine: str) -> None:
        del self._by_engine[engine][request]
        self._engines[request].discard(engine)
        if not self._engines[request]:
            del self._engines[request]
