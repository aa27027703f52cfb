"""Asks engines that are silent about a request whether they have it at all: any one message may have been lost.

An engine's refusal, its last tokens or its word of a failure are said once. Without them the request would seem to run
for ever. An engine that has it says nothing; a request that none of its engines has goes on elsewhere. Because answers
take the same way as tokens, an answer is never older than the tokens that it seems to deny.
"""

from collections import defaultdict

from mesh.messages import NotHeld, Probe
from router.effects import Send
from router.flight import Flight, Phase
from router.flights import Flights


class Probing:
    """Of requests of which nothing was heard for ``silent_s``."""

    def __init__(self, flights: Flights, silent_s: float) -> None:
        self._flights = flights
        self._silent_s = silent_s
        self._next_round: float | None = None

    def __repr__(self) -> str:
        return f"<Probing next at {self._next_round}>"

    def next_deadline(self) -> float | None:
        """When to `ask`; None: there is nobody to ask about."""
        return self._next_round

    def begin(self, now: float) -> None:
        """There are requests in flight."""
        if self._next_round is None:
            self._next_round = now + self._silent_s / 2

    def ask(self, now: float) -> list[Send]:
        """Nothing before its time."""
        if self._next_round is None or now < self._next_round:
            return []
        self._next_round = now + self._silent_s / 2 if len(self._flights) else None
        asked: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for flight in self._flights:
            if self._is_silent(flight, now):
                flight.asked_at, flight.denied = now, set()
                for engine in flight.engines:
                    asked[engine].append((flight.id, flight.attempt))
        return [Send(engine, Probe(requests)) for engine, requests in asked.items()]

    def _is_silent(self, flight: Flight, now: float) -> bool:
        return flight.phase is Phase.RUNNING and now - max(flight.progress_at, flight.asked_at) >= self._silent_s

    def denied(self, engine: str, message: NotHeld) -> list[Flight]:
        """The requests that no engine has now that ``engine`` has not."""
        nowhere = []
        for request, attempt in message.requests:
            flight = self._flights.placed(request)
            if flight is not None and flight.attempt == attempt and engine in flight.engines:
                flight.denied.add(engine)
                if flight.denied.issuperset(flight.engines):
                    nowhere.append(flight)
        return nowhere
