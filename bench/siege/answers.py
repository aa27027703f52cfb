"""How requests of attackers end. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from bench.siege.http import Reply

SAID_CHARS = 160
NOT_SPOKEN = (501, 505)  # that HTTP is not spoken so: as good as 4xx


class End(StrEnum):
    SERVED = "served"  # with 2xx, to its last byte
    REFUSED = "refused"  # with 4xx
    CUT = "cut"  # the connection was closed
    HELD = "held"  # neither, when the attacker lost patience
    FAILED = "failed"  # with 5xx, or with an error in the middle of a stream


LIKE_ANYONE = frozenset({End.SERVED, End.REFUSED, End.CUT})
TURNED_AWAY = frozenset({End.REFUSED, End.CUT})
ANY_END = LIKE_ANYONE | {End.HELD}  # of attackers that wait for nothing


@dataclass(frozen=True, slots=True)
class Answer:
    """``said``: the beginning of what came back, for the report."""

    end: End
    status: int | None = None
    said: str = ""

    def __str__(self) -> str:
        return f"{self.end}{'' if self.status is None else f' {self.status}'}"


def answer_of(reply: Reply) -> Answer:
    return Answer(_end(reply), reply.status, reply.body[:SAID_CHARS].decode(errors="replace"))


def _end(reply: Reply) -> End:
    if reply.is_late:
        return End.HELD
    if reply.status is None:
        return End.CUT
    if 400 <= reply.status < 500 or reply.status in NOT_SPOKEN:
        return End.REFUSED
    if reply.status >= 500 or b'data: {"error"' in reply.body:
        return End.FAILED
    return End.CUT if reply.is_closed else End.SERVED
