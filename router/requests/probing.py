"""Asks engines about requests of which they say too little: any one message may have been lost.

An engine's tokens, its refusal or its word of a failure are said once. Without them a stream would have a gap, or the
request would seem to run for ever. An engine that has the request says again what it said from the first missing token
on, be it the end; a request that none of its engines has goes on elsewhere. Because answers take the same way as
tokens, an answer is never older than the tokens that it seems to deny.
"""

from collections import defaultdict

from mesh.wire.requests import NotHeld, Probe, Question
from router.effects import Send
from router.requests.in_flight_request import Flight, Phase
from router.requests.in_flight_requests import Flights

ROUNDS = 4  # in the time that an answer may take


class Probing:
    """``reply_s``: how long an answer may take, and so a request that has not begun may be silent.

    One that has begun is asked about after half of that, one that nobody has accepted, or whose tokens have a gap,
    after a quarter.
    """

    def __init__(self, flights: Flights, reply_s: float) -> None:
        self._flights = flights
        self._reply_s = reply_s
        self._round_s = reply_s / ROUNDS
        self._next_round: float | None = None

    def __repr__(self) -> str:
        return f"<Probing next at {self._next_round}>"

    def next_deadline(self) -> float | None:
        """When to `ask`; None: there is nobody to ask about."""
        return self._next_round

    def begin(self, now: float) -> None:
        """There are requests in flight."""
        if self._next_round is None:
            self._next_round = now + self._round_s

    def ask(self, now: float) -> list[Send]:
        """About all that are silent. Nothing before its time."""
        if self._next_round is None or now < self._next_round:
            return []
        self._next_round = now + self._round_s if len(self._flights) else None
        asked: defaultdict[str, list[Question]] = defaultdict(list)
        for flight in self._flights:
            if self._is_silent(flight, now):
                flight.asked_at, flight.denied = now, set()
                for engine in flight.engines:
                    asked[engine].append(_question(flight))
        return [Send(engine, Probe(questions)) for engine, questions in asked.items()]

    def fill(self, flight: Flight, now: float) -> list[Send]:
        """Tokens came behind a gap: their owner knows what is missing."""
        if now - flight.asked_at < self._round_s:
            return []
        flight.asked_at, flight.denied = now, set()
        return [Send(engine, Probe([_question(flight)])) for engine in flight.engines]

    def _is_silent(self, flight: Flight, now: float) -> bool:
        match flight.phase:
            case Phase.WAITING:
                return False
            case Phase.SENT:
                since, patience_s = flight.sent_at, self._round_s
            case Phase.RUNNING if flight.stream.gap_since is not None:
                since, patience_s = flight.stream.gap_since, self._round_s
            case Phase.RUNNING:
                since, patience_s = flight.progress_at, self._reply_s / 2 if flight.stream.tokens else self._reply_s
        return now - max(since, flight.asked_at) >= patience_s

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


def _question(flight: Flight) -> Question:
    return Question(flight.id, flight.attempt, flight.stream.next_offset)
