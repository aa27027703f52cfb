"""Requests of one gateway: events of its feed, folded. What is kept is bounded, whatever comes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from router.cli.top.words import clean
from router.feed.frames import RequestEvent, RequestsFrame

MOST_IN_FLIGHT: Final = 1000
MOST_ENDED: Final = 500
MOST_MOVES: Final = 200  # of each kind
MOST_ID_LETTERS: Final = 600
FORGOTTEN_S: Final = 60.0  # after which a request is left out whose end may not have been told

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True)
class RequestRow:
    """A request. Times are of the gateway's clock. ``status``: waiting, prefill, decode, or how it ended."""

    gateway: str
    id: str
    service: str
    key: str
    arrived_at: float
    heard_at: float
    status: str = "waiting"
    engine: str = ""
    decode_engine: str = ""
    prompt_tokens: int = 0
    tokens: int = 0
    ttft_s: float | None = None
    tpot_s: float | None = None
    kept: bool | None = None
    reason: str = ""
    num_moves: int = 0
    num_interruptions: int = 0
    has_ended: bool = False
    is_doubtful: bool = False  # its end may not have been told


@dataclass(frozen=True, slots=True)
class MoveRow:
    """A request went to another engine. ``kind``: hand-over, migration, or interrupted, which leads nowhere."""

    at: float
    gateway: str
    id: str
    service: str
    kind: str
    source: str
    target: str


@dataclass(slots=True)
class Requests:
    """One gateway's requests and moves, oldest first."""

    gateway: str
    one_in: int = 1
    _in_flight: dict[str, RequestRow] = field(default_factory=dict)
    _ended: dict[str, RequestRow] = field(default_factory=dict)
    _moves: dict[str, dict[tuple[str, int], MoveRow]] = field(default_factory=dict)  # by kind; by request and count

    def __iter__(self) -> Iterator[RequestRow]:
        yield from self._ended.values()
        yield from self._in_flight.values()

    @property
    def num_in_flight(self) -> int:
        return len(self._in_flight)

    def moves(self) -> Iterator[MoveRow]:
        for kind in self._moves.values():
            yield from kind.values()

    def restart(self) -> None:
        """The gateway is about to tell all that is in flight."""
        self._in_flight.clear()

    def take(self, frame: RequestsFrame) -> None:
        if frame.one_in > self.one_in or frame.left_out:
            for row in self._in_flight.values():
                row.is_doubtful = True
        self.one_in = frame.one_in
        for event in frame.events:
            if len(event.id) <= MOST_ID_LETTERS:
                self._happen(event)
        self._forget(frame.at)

    def _happen(self, event: RequestEvent) -> None:
        row = self._in_flight.get(event.id)
        if row is None:
            if event.id in self._ended:
                return
            row = RequestRow(self.gateway, event.id, clean(event.service), clean(event.key), event.at, event.at)
            _put(self._in_flight, event.id, row, MOST_IN_FLIGHT)
        row.heard_at, row.is_doubtful = event.at, False
        if (move := _fold(row, event)) is not None:
            name = (move.id, row.num_moves + row.num_interruptions)  # a gateway that is heard anew tells moves again
            _put(self._moves.setdefault(move.kind, {}), name, move, MOST_MOVES)
        if row.has_ended:
            del self._in_flight[event.id]
            _put(self._ended, event.id, row, MOST_ENDED)

    def _forget(self, at: float) -> None:
        gone = [row.id for row in self._in_flight.values() if row.is_doubtful and row.heard_at < at - FORGOTTEN_S]
        for id_ in gone:
            del self._in_flight[id_]


def _put(kept: dict[Key, Value], key: Key, value: Value, most: int) -> None:
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


def _fold(row: RequestRow, event: RequestEvent) -> MoveRow | None:
    """Bring the row up to date; return the move that the event was."""
    match event.what:
        case "arrived":
            row.arrived_at, row.prompt_tokens = event.at, event.prompt_tokens
        case "waits" | "refused":
            row.status, row.reason = "waiting", clean(event.reason)
        case "dispatched":
            row.status, row.engine, row.decode_engine = "prefill", clean(event.engine), clean(event.decode)
            row.reason = clean(event.reason)
        case "first_token":
            row.status, row.engine, row.ttft_s = "decode", clean(event.engine), event.ttft_s
        case "moved":
            return _moved(row, event)
        case "interrupted":
            return _interrupted(row, event)
        case "ended":
            _ended(row, event)
    return None


def _moved(row: RequestRow, event: RequestEvent) -> MoveRow | None:
    source, row.engine = row.engine, clean(event.engine)
    if source in ("", row.engine):
        return None
    kind = "hand-over" if row.num_moves == 0 and row.engine == row.decode_engine else "migration"
    row.num_moves += 1
    return MoveRow(event.at, row.gateway, row.id, row.service, kind, source, row.engine)


def _interrupted(row: RequestRow, event: RequestEvent) -> MoveRow:
    source, row.engine = row.engine, ""
    row.num_interruptions += 1
    row.status, row.reason, row.tokens = "waiting", clean(event.reason), event.tokens
    return MoveRow(event.at, row.gateway, row.id, row.service, "interrupted", source, "")


def _ended(row: RequestRow, event: RequestEvent) -> None:
    row.has_ended, row.status, row.reason = True, clean(event.outcome or "ended"), clean(event.reason)
    row.tokens, row.ttft_s, row.tpot_s, row.kept = event.tokens, event.ttft_s, event.tpot_s, event.kept
