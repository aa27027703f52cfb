"""Asks engines about requests of which they say too little: any one message may have been lost.

An engine's tokens, its refusal or its word of a failure are said once. Without them a stream would have a gap, or the
request would seem to run for ever. An engine that has the request says again what it said from the first missing token
on, be it the end; a request that none of its engines has goes on elsewhere. Because answers take the same way as
tokens, an answer is never older than the tokens that it seems to deny.
"""

from collections import defaultdict

from mesh.wire.requests import NotHeld, Probe, ProbeQuestion
from router.effects import SendToEngine
from router.requests.in_flight_request import InFlightRequest
from router.requests.in_flight_requests import InFlightRequests
from router.requests.request_state import RequestPhase

ROUNDS = 4  # in the time that an answer may take


class Probing:
    """Decides when engines are asked about silent requests. ``reply_s``: how long an answer may take, and so a request
    that has not begun may be silent.

    One that has begun is asked about after half of that, one that nobody has accepted, or whose tokens have a gap,
    after a quarter.
    """

    def __init__(self, in_flight: InFlightRequests, reply_s: float) -> None:
        self._in_flight = in_flight
        self._reply_s = reply_s
        self._round_s = reply_s / ROUNDS
        self._next_round: float | None = None

    def __repr__(self) -> str:
        return f"<Probing next at {self._next_round}>"

    def next_deadline(self) -> float | None:
        """Return when to `ask`; None: there is nobody to ask about."""
        return self._next_round

    def begin(self, now: float) -> None:
        """There are requests in flight."""
        if self._next_round is None:
            self._next_round = now + self._round_s

    def ask(self, now: float) -> list[SendToEngine]:
        """About all that are silent. Nothing before its time."""
        if self._next_round is None or now < self._next_round:
            return []
        self._next_round = now + self._round_s if len(self._in_flight) else None
        asked: defaultdict[str, list[ProbeQuestion]] = defaultdict(list)
        for request in self._in_flight:
            if self._is_silent(request, now):
                request.contact.ask(now)
                for engine in request.engines:
                    asked[engine].append(_question(request))
        return [SendToEngine(engine, Probe(questions)) for engine, questions in asked.items()]

    def fill(self, request: InFlightRequest, now: float) -> list[SendToEngine]:
        """Tokens came behind a gap: their owner knows what is missing."""
        if now - request.contact.asked_at < self._round_s:
            return []
        request.contact.ask(now)
        return [SendToEngine(engine, Probe([_question(request)])) for engine in request.engines]

    def _is_silent(self, request: InFlightRequest, now: float) -> bool:
        match request.assignment.phase:
            case RequestPhase.WAITING:
                return False
            case RequestPhase.SENT:
                since, patience_s = request.assignment.sent_at, self._round_s
            case RequestPhase.RUNNING if request.stream.gap_since is not None:
                since, patience_s = request.stream.gap_since, self._round_s
            case RequestPhase.RUNNING:
                since, patience_s = (
                    request.contact.progress_at,
                    self._reply_s / 2 if request.stream.tokens else self._reply_s,
                )
        return now - max(since, request.contact.asked_at) >= patience_s

    def denied(self, engine: str, message: NotHeld) -> list[InFlightRequest]:
        """The requests that no engine has now that ``engine`` has not."""
        nowhere = []
        for request_id, attempt in message.requests:
            request = self._in_flight.placed(request_id)
            if request is not None and request.assignment.attempt == attempt and engine in request.engines:
                request.contact.denied.add(engine)
                if request.contact.denied.issuperset(request.engines):
                    nowhere.append(request)
        return nowhere


def _question(request: InFlightRequest) -> ProbeQuestion:
    return ProbeQuestion(request.id, request.assignment.attempt, request.stream.next_offset)
