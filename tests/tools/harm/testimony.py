"""What honest clients say of their requests, and what follows from it: the witnesses of every fault and attack."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, zip_longest
from typing import NamedTuple

import msgspec

from tests.tools.harm.clients import Client


class Fate(StrEnum):
    WHOLE = "whole"
    FAILED = "failed"
    REFUSED = "refused"  # told to come back later, before anything of an answer
    LEFT = "left"  # its client went away
    LOST = "lost"  # with a gateway that was killed


class Account(msgspec.Struct, frozen=True):
    """What came of one request. Times are of the machine's monotonic clock.

    A silence is the time between two of its ``moments``. ``wrong``: pieces of the answer that are not what a healthy
    mesh says: duplicated, missing or other ones.
    """

    kind: str
    began: float
    ended: float
    moments: list[float] = []
    fate: Fate = Fate.WHOLE
    wrong: int = 0
    problem: str | None = None


def account_of(client: Client, expected: Sequence[str], *, is_excused: bool = False, is_timed: bool = True) -> Account:
    """``is_excused``: its own gateway was killed. Not ``is_timed``: a client that does not read has no silences."""
    fate, wrong = _fate(client, is_excused), num_wrong(client.pieces, expected, is_whole=client.is_whole)
    problem = None
    if fate is Fate.FAILED:
        said = client.problem or "late"
        problem = f"{client.name}: status {client.status}, {len(client.pieces)} pieces: {said}"
    elif wrong:
        problem = f"{client.name}: {wrong} wrong pieces of {len(client.pieces)}"
    moments = client.moments() if is_timed and not is_excused else []
    ended = time.monotonic() if client.ended_at is None else client.ended_at
    return Account(client.name, client.sent_at, ended, moments, fate, wrong, problem)


def _fate(client: Client, is_excused: bool) -> Fate:
    if client.has_left:
        return Fate.LEFT
    if client.was_refused:
        return Fate.REFUSED
    if client.is_whole:
        return Fate.WHOLE
    return Fate.LOST if is_excused else Fate.FAILED


def num_wrong(got: Sequence[str], expected: Sequence[str], *, is_whole: bool) -> int:
    """Positions that differ; of an answer that broke off, only what came counts."""
    pairs = zip_longest(got, expected) if is_whole or len(got) > len(expected) else zip(got, expected, strict=False)
    return sum(one != other for one, other in pairs)


class Window(NamedTuple):
    start: float
    end: float

    def meets(self, start: float, end: float) -> bool:
        return end > self.start and start < self.end


ALWAYS = Window(float("-inf"), float("inf"))


@dataclass(frozen=True, slots=True)
class Honest:
    """What came of all requests of honest clients. ``gap_s`` is their longest silence, ``gap_of`` whose it was."""

    requests: int = 0
    failed: int = 0
    lost: int = 0
    refused: int = 0
    left: int = 0
    wrong: int = 0
    gap_s: float = 0.0
    gap_of: str = ""
    problems: Sequence[str] = ()


class Accounts:
    """All accounts so far."""

    def __init__(self) -> None:
        self._accounts: list[Account] = []

    def hear(self, account: Account) -> None:
        self._accounts.append(account)

    def forget(self, before: float) -> None:
        self._accounts = [account for account in self._accounts if account.ended >= before]

    def kinds_since(self, moment: float) -> frozenset[str]:
        """Kinds of which a whole request began and ended after that moment."""
        return frozenset(account.kind for account in self._accounts if account.began >= moment)

    def summary(self, window: Window = ALWAYS) -> Honest:
        """Of requests and silences that the window had a part in; each counts whole."""
        met = [account for account in self._accounts if window.meets(account.began, account.ended)]
        fates = Counter(account.fate for account in met)
        gaps = [
            (after - before, account.kind)
            for account in met
            for before, after in pairwise(account.moments)
            if window.meets(before, after)
        ]
        gap_s, gap_of = max(gaps, default=(0.0, ""))
        return Honest(
            requests=len(met),
            failed=fates[Fate.FAILED],
            lost=fates[Fate.LOST],
            refused=fates[Fate.REFUSED],
            left=fates[Fate.LEFT],
            wrong=sum(account.wrong for account in met),
            gap_s=gap_s,
            gap_of=gap_of,
            problems=[account.problem for account in met if account.problem],
        )
