"""What the witness says: accounts of its requests, and what follows from them. Pure."""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import msgspec


class Account(msgspec.Struct, frozen=True):
    """One request of the witness, or a part of a long one. Times are of the machine's monotonic clock."""

    kind: str
    began: float
    ended: float
    arrivals: list[float] = []
    problem: str | None = None


class Gap(NamedTuple):
    """How long nothing came, and of what."""

    seconds: float
    kind: str


class Window(NamedTuple):
    start: float
    end: float

    def meets(self, start: float, end: float) -> bool:
        return end > self.start and start < self.end


def worst_gap(accounts: Iterable[Account], window: Window) -> Gap:
    """Of all silences that the window had a part in; each counts whole."""
    gaps = [
        Gap(after - before, account.kind)
        for account in accounts
        for before, after in pairwise((account.began, *account.arrivals, account.ended))
        if window.meets(before, after)
    ]
    return max(gaps, default=Gap(0.0, ""))


def failures(accounts: Iterable[Account], window: Window) -> list[str]:
    return [
        f"{account.kind}: {account.problem}"
        for account in accounts
        if account.problem and window.meets(account.began, account.ended)
    ]


def kinds_since(accounts: Iterable[Account], moment: float) -> frozenset[str]:
    """Of which a whole request began and ended after that moment."""
    return frozenset(account.kind for account in accounts if account.began >= moment)
