"""The blocks of a pool that nobody holds and whose content is known, in the order in which they were let go.

An engine holds hundreds of requests and remembers thousands. So what is kept of each block here is as small as can be:
those that were released together are one array.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf


class CachedBlocks:
    """Keeps some of the blocks ``0 .. num_blocks - 1`` in order.

    The one that was released first goes first; of those that were released together, the last one of their table.
    """

    def __init__(self, num_blocks: int) -> None:
        # the last release of each, which it may have been taken out of since; in a list, compiled code would keep an
        # object for each of these numbers
        self._since = array("Q", bytes(8 * num_blocks))
        self._released: OrderedDict[int, array[int]] = OrderedDict()  # by moment, in the order of their tables
        self.num = 0

    def __repr__(self) -> str:
        return f"<CachedBlocks {self.num} in {len(self._released)} releases>"

    def __len__(self) -> int:
        return self.num

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._released.values())

    @property
    def since(self) -> float:
        """Return the moment at which the one that goes first was released; infinite: there is none."""
        return next(iter(self._released), inf)

    def add(self, blocks: Sequence[int], now: int) -> None:
        """Add what was released at a moment, which is later than all before it: some blocks of one table."""
        if not blocks:
            return
        since = self._since
        for block in blocks:
            since[block] = now
        self._released[now] = array("I", blocks)
        self.num += len(blocks)

    def first(self, most: int) -> Iterable[int]:
        """Return so many of those that go first and were released together; none if there is none."""
        together = next(iter(self._released.values()), None)
        return () if together is None else together[: -most - 1 : -1]

    def pop(self, num_blocks: int = 1) -> int:
        """Take so many of `first` out. Return the last of them."""
        since, together = next(iter(self._released.items()))
        last = together[-num_blocks]
        del together[-num_blocks:]
        if not together:
            del self._released[since]
        self.num -= num_blocks
        return last

    def remove(self, block: int) -> None:
        """Take one out that is here."""
        since = self._since[block]
        together = self._released[since]
        together.remove(block)
        if not together:
            del self._released[since]
        self.num -= 1
