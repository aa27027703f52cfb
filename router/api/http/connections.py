"""The connections of a gateway: how many there may be, how long each phase may take, who is closed first.

Pure: time is passed in, and what is to be closed is answered. A connection waits for a request, sends a head, sends a
body, or reads an answer; `ConnectionPhase` and the bytes that it moved since say how long it may go on.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

MAX_URL_BYTES: Final = 8192
MAX_HEAD_BYTES: Final = 32_768  # request line and headers
MAX_FIELDS: Final = 100
MAX_PIPELINED: Final = 8  # requests that wait for the answer to the one before
MAX_FRAMING_BYTES: Final = 65_536  # around a body: sizes of chunks, trailers, blanks; as many again as its own bytes
MAX_CHUNKS: Final = 1024  # of a body, and one more for each of so many bytes:
CHUNK_BYTES: Final = 64

FIRST_BYTE_S: Final = 20.0  # from connecting to a request's first byte
KEEP_ALIVE_S: Final = 75.0  # from an answer to the next request's first byte
HEAD_S: Final = 10.0  # from its first byte to the end of its headers
BODY_GRACE_S: Final = 5.0  # of a body, before its rate counts
BODY_BYTES_PER_S: Final = 1024
LINGER_S: Final = 2.0  # in which the rest of a body is read after its answer
LINGER_BYTES: Final = 2**24
STALL_S: Final = 30.0  # in which a client that reads an answer has to get on
STALL_BYTES: Final = 65_536  # by so much, once the answer is complete


class ConnectionPhase(Enum):
    IDLE = auto()  # no byte of a request is there
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()  # the request is there
    LEAVING = auto()  # it was refused; what is still on its way is read and dropped, so that the answer arrives


@dataclass(slots=True, eq=False)
class Connection:
    """What is known of one. ``since``: when its phase began; ``num_bytes``: of a body, in this phase.

    ``close`` is for whoever is told that it has to go.
    """

    peer: str
    since: float
    phase: ConnectionPhase = ConnectionPhase.IDLE
    was_used: bool = False  # a request came before
    num_bytes: int = 0
    answered_at: float | None = None  # its answer is complete, though its body is not
    unsent: int = 0  # bytes of answers that wait to leave, when they were last looked at
    unsent_since: float | None = None
    close: Callable[[], None] = field(default=lambda: None, repr=False)

    def enter(self, phase: ConnectionPhase, now: float) -> None:
        self.phase, self.since, self.num_bytes, self.answered_at = phase, now, 0, None
        self.was_used |= phase is ConnectionPhase.HEAD

    def overdue(self, now: float) -> str:
        """Return why to close it; empty: let it be."""
        elapsed_s = now - self.since
        if self.phase is ConnectionPhase.IDLE:
            return "" if elapsed_s < (KEEP_ALIVE_S if self.was_used else FIRST_BYTE_S) else "sent no request"
        if self.phase is ConnectionPhase.HEAD:
            return "" if elapsed_s < HEAD_S else f"the headers did not arrive within {HEAD_S:g} s"
        if self.phase is ConnectionPhase.BODY:
            return self._slow_body(now)
        if self.phase is ConnectionPhase.LEAVING:
            return "was refused" if elapsed_s >= LINGER_S or self.num_bytes > LINGER_BYTES else ""
        return ""

    def _slow_body(self, now: float) -> str:
        if self.answered_at is not None:
            is_too_much = now - self.answered_at >= LINGER_S or self.num_bytes > LINGER_BYTES
            return "sends a body that nobody reads" if is_too_much else ""
        due = (now - self.since - BODY_GRACE_S) * BODY_BYTES_PER_S
        return "" if self.num_bytes >= due else f"the body comes at less than {BODY_BYTES_PER_S} bytes/s"

    def stalls(self, unsent: int, is_complete: bool, now: float) -> bool:
        """Return whether its client does not read. ``unsent`` bytes wait now; ``is_complete``: no more will be
        added.
        """
        if unsent == 0 or self.unsent_since is None:
            self.unsent, self.unsent_since = unsent, now if unsent else None
            return False
        wanted = min(STALL_BYTES, self.unsent) if is_complete else 1
        if abs(self.unsent - unsent) >= wanted and (not is_complete or unsent < self.unsent):
            self.unsent, self.unsent_since = unsent, now
            return False
        return now - self.unsent_since >= STALL_S


@dataclass(slots=True)
class Connections:
    """All of a gateway. ``max_of_one``: of one peer that is no proxy. No call takes longer the more there are."""

    max_all: int
    max_of_one: int
    refused: Counter[str] = field(default_factory=Counter)  # by reason
    _of: Counter[str] = field(default_factory=Counter)  # by peer
    _all: set[Connection] = field(default_factory=set)
    _idle: dict[Connection, None] = field(default_factory=dict)  # those that are idle for longest first
    _idle_of: defaultdict[str, dict[Connection, None]] = field(default_factory=lambda: defaultdict(dict))  # by peer

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection, *, is_proxy: bool = False) -> Connection | None:
        """Add a connection. Return the one that has to go for it: the longest idle, or itself where nobody is idle."""
        leaves = self._who_leaves(connection, is_proxy)
        if leaves is not None:
            self.remove(leaves)
        if leaves is not connection:
            self._all.add(connection)
            self._of[connection.peer] += 1
            if connection.phase is ConnectionPhase.IDLE:
                self._note_idle(connection)
        return leaves

    def _who_leaves(self, newest: Connection, is_proxy: bool) -> Connection | None:
        if not is_proxy and self._of[newest.peer] >= self.max_of_one:
            self.refused["too many of one client"] += 1
            return next(iter(self._idle_of.get(newest.peer, ())), newest)
        if len(self._all) >= self.max_all:
            self.refused["too many"] += 1
            return next(iter(self._idle), newest)
        return None

    def enter(self, connection: Connection, phase: ConnectionPhase, now: float) -> None:
        """A phase of one of them begins."""
        if connection.phase is ConnectionPhase.IDLE:
            self._forget_idle(connection)
        connection.enter(phase, now)
        if phase is ConnectionPhase.IDLE:
            self._note_idle(connection)

    def _note_idle(self, connection: Connection) -> None:
        if connection in self._all:
            self._idle[connection] = self._idle_of[connection.peer][connection] = None

    def _forget_idle(self, connection: Connection) -> None:
        if connection in self._idle:
            del self._idle[connection]
            of_one = self._idle_of[connection.peer]
            del of_one[connection]
            if not of_one:
                del self._idle_of[connection.peer]

    def remove(self, connection: Connection) -> None:
        if connection in self._all:
            self._all.remove(connection)
            self._forget_idle(connection)
            self._of[connection.peer] -= 1
            if not self._of[connection.peer]:
                del self._of[connection.peer]

    def check_invariants(self) -> None:
        """Raise `AssertionError` if the books do not agree."""
        assert set(self._idle) == {one for one in self._all if one.phase is ConnectionPhase.IDLE}
        assert set(self._idle) == {one for idle in self._idle_of.values() for one in idle}
        assert all(self._idle_of.values())
        assert self._of == Counter(one.peer for one in self._all)
