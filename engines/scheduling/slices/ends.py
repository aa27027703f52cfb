"""Decides whether a request is kept, moved or offloaded when its slice has ended (SCLS's outlook, section 7).

A request holds memory for one slice. At its end it wants more, and others may wait for memory, too. Each way out makes
somebody wait. If the request is kept, the first of the others waits until this request or another one ends. If it is
moved, it stops for two steps and goes on at the pace of another engine. If it is offloaded, its KV is copied to the
host's memory and back, and in between it waits for room. The ways are compared by how late both become beyond their
promises, then by the sum of their delays, then by the trouble they make: least first.

How soon there is memory follows from what runs: of n requests with m tokens to come on average, one ends about every
m / n steps (as in `engines.transfers.freeness`).
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from math import inf
from typing import NamedTuple

STOP_STEPS = 2  # that a request which moves misses (bench.transfer.pauses: 1.2 to 1.6)


class Fate(IntEnum):
    """The least trouble first."""

    KEEP = 0
    MOVE = 1
    OFFLOAD = 2


class EndedSlice(NamedTuple):
    """A request whose slice has ended."""

    held: int  # blocks
    growth: int  # blocks that its next slice takes beyond those
    left_tokens: float  # predicted, to its end
    slack_s: float  # before its next token is late
    tpot_s: float  # promised
    copy_s: float  # of its KV to host memory, or back


class Rival(NamedTuple):
    """Who waits for memory first."""

    need: int  # blocks, for its next slice, too
    left_s: float  # from its beginning to its end, predicted
    slack_s: float  # before it has to begin


class EngineOutlook(NamedTuple):
    """The engine. Steps and ends are those of the other requests that it runs."""

    room: int  # blocks that nobody holds and nobody is promised
    has_place: bool  # for one more request to run
    step_s: float
    end_s: float  # from one end to the next; infinite if nobody else runs
    end_blocks: float  # that each gives back
    can_offload: bool


class There(NamedTuple):
    """Another engine with room for the request. The request can go on here while it moves."""

    id: str
    pace_s: float  # from token to token
    move_s: float


class End(NamedTuple):
    """One way to end a slice. ``late_s``: of both, beyond their promises; ``delay_s``: of both."""

    late_s: float
    delay_s: float
    fate: Fate
    to: str = ""

    def __str__(self) -> str:
        return f"{self.fate.name.lower()} {self.to}".rstrip() + f" ({self.late_s:.2f} s late, {self.delay_s:.2f} s)"


def ends(ended: EndedSlice, rival: Rival | None, here: EngineOutlook, others: Iterable[There] = ()) -> list[End]:
    """All that can become of it, the best first."""
    return sorted(_ends(ended, rival, here, others))


def _ends(ended: EndedSlice, rival: Rival | None, here: EngineOutlook, others: Iterable[There]) -> Iterator[End]:
    if ended.growth <= here.room:
        waits_s = 0.0
        if rival is not None:
            until_others_s = _wait_s(here, rival.need - (here.room - ended.growth), needs_place=not here.has_place)
            waits_s = min(until_others_s, ended.left_tokens * here.step_s)
        yield _end(Fate.KEEP, ended, 0.0, here.step_s, rival, waits_s)
    freed = here.room + ended.held
    begins_s = 0.0 if rival is None else _wait_s(here, rival.need - freed)  # once those blocks are free
    for there in others:
        waits_s = there.move_s + begins_s
        yield _end(Fate.MOVE, ended, STOP_STEPS * here.step_s, there.pace_s, rival, waits_s, there.id)
    if here.can_offload:
        away_s = 2 * ended.copy_s + _away_s(ended, rival, here)
        yield _end(Fate.OFFLOAD, ended, away_s, here.step_s, rival, ended.copy_s + begins_s)


def _away_s(ended: EndedSlice, rival: Rival | None, here: EngineOutlook) -> float:
    """From when its blocks are free to when there is room for it again. If the rival takes them, its end makes room."""
    wanted, freed = ended.held + ended.growth, here.room + ended.held
    if rival is None or rival.need > freed:
        return _wait_s(here, wanted - freed)
    return min(_wait_s(here, wanted - (freed - rival.need)), rival.left_s)


def _wait_s(here: EngineOutlook, num_blocks: int, *, needs_place: bool = False) -> float:
    """Until others have given back so many."""
    blocks_s = here.end_s * num_blocks / here.end_blocks if num_blocks > 0 and here.end_blocks else 0.0
    if num_blocks > 0 and not here.end_blocks:
        blocks_s = inf
    return max(blocks_s, here.end_s if needs_place else 0.0)


def _end(
    fate: Fate, ended: EndedSlice, delay_s: float, pace_s: float, rival: Rival | None, waits_s: float, to: str = ""
) -> End:
    late_s = max(0.0, delay_s + ended.left_tokens * (pace_s - ended.tpot_s) - ended.slack_s)
    if rival is None:
        return End(late_s, delay_s, fate, to)
    return End(late_s + max(0.0, waits_s - rival.slack_s), delay_s + waits_s, fate, to)
