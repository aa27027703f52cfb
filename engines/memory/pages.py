"""Pages: the memory that the block pools of an engine share. Accounting only.

A page is free, or it is one pool's: some of its blocks are held, or hold prefixes that are worth keeping. A page of
which nobody holds a block is idle. Its pool keeps its prefixes until memory is short; then the page that has been idle
for longest is evicted, whosever it is.

A request that waits for more memory than there is claims it. Less urgent requests of other services are admitted only
if they leave that much. Otherwise a stream of small requests would keep a large one waiting for ever.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Protocol

Precedence = tuple[tuple[float, ...], int, float, str]  # of a request that wants memory: the smaller, the more urgent


class Claimant(Protocol):
    """A request that waits, unless it ``is_over``."""

    is_over: bool


class Owner(Protocol):
    """A block pool, as the others see it. Moments are counts of `PagePool.clock`."""

    @property
    def num_idle_pages(self) -> int: ...

    @property
    def idle_since(self) -> float:
        """Return since when its longest idle page is idle; infinite if it has none."""

    @property
    def cached_since(self) -> float:
        """Return since when nobody holds the block that it would evict next; infinite if it has none."""

    def evict_page(self) -> None:
        """Free the page that has been idle for longest: what its blocks hold is forgotten."""

    def owned_pages(self) -> Iterable[int]: ...


@dataclass(frozen=True, slots=True)
class Claim:
    owner: Owner
    claimant: Claimant
    precedence: Precedence
    num_pages: int


class PagePool:
    """Pages ``0 .. num_pages - 1``. ``free``: the next one last. ``clock``: counts releases, to tell old from new.

    ``num_held``: pages that some block is held of, counted by their pools. An engine may have hundreds of those, and
    each asks for what is idle at every status.
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.free = array("I", range(num_pages - 1, -1, -1))
        self.clock = 0
        self.num_held = 0
        self.is_shared = False
        self._owners: list[Owner] = []
        self._claim: Claim | None = None

    def __repr__(self) -> str:
        return f"<PagePool {len(self.free)} free of {self.num_pages}, {len(self._owners)} owners, {self._claim}>"

    def add(self, owner: Owner) -> None:
        self._owners.append(owner)
        self.is_shared = len(self._owners) > 1

    def remove(self, owner: Owner) -> None:
        """One that owns no page any more."""
        self._owners.remove(owner)
        self.is_shared = len(self._owners) > 1
        self.settle(owner)

    def num_idle_beside(self, owner: Owner) -> int:
        """Idle pages of the other pools."""
        return self.num_pages - len(self.free) - self.num_held - owner.num_idle_pages

    def idle_since_beside(self, owner: Owner) -> float:
        """Return since when the longest idle page of the other pools is idle; infinite if they have none."""
        return min([other.idle_since for other in self._owners if other is not owner], default=inf)

    def reclaim(self, wanting: Owner) -> bool:
        """Free a page of another pool, unless ``wanting`` has what is older, or the others have none to give."""
        if not self.is_shared:
            return False
        others = [other for other in self._owners if other is not wanting]
        oldest = min(others, key=lambda other: other.idle_since)
        if oldest.idle_since == inf or oldest.idle_since > wanting.cached_since:
            return False
        oldest.evict_page()
        return True

    # --- who may be admitted ------------------------------------------------------------------------------------------

    def claimed_beside(self, owner: Owner, precedence: Precedence) -> int:
        """Pages that a request of that precedence must leave to a more urgent one of another pool."""
        claim = self._claim
        if claim is None or claim.owner is owner:
            return 0
        if claim.claimant.is_over:
            self._claim = None
            return 0
        return claim.num_pages if claim.precedence < precedence else 0

    def settle(self, owner: Owner) -> None:
        """A request of that pool is admitted, or it has none any more."""
        if self._claim is not None and self._claim.owner is owner:
            self._claim = None

    def claim(self, owner: Owner, claimant: Claimant, precedence: Precedence, num_pages: int) -> None:
        """Pages that the most urgent request of that pool waits for; the most urgent one of all has the claim."""
        claim = self._claim
        if claim is None or claim.owner is owner or claim.claimant.is_over or precedence < claim.precedence:
            self._claim = Claim(owner, claimant, precedence, num_pages)

    def check_invariants(self) -> None:
        """Raise AssertionError unless every page is free or in exactly one pool, and what is held is counted."""
        owned = [*chain.from_iterable(owner.owned_pages() for owner in self._owners)]
        assert len(self.free) + len(owned) == self.num_pages, "a page is lost or has two owners"
        assert len({*self.free, *owned}) == self.num_pages, "a page is free and owned, or has two owners"
        num_idle = sum(owner.num_idle_pages for owner in self._owners)
        assert self.num_held == len(owned) - num_idle, "held pages are miscounted"
