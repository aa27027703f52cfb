"""Matches block bytes on a communicator without tags: NCCL delivers in the order of sending, nothing else.

Each send has a ticket, counted from 0. A `Blocks` message says its ticket, and the sizes of the last `REMEMBERED`
sends. These are all that may not have been received: NCCL finishes small sends into buffers, a few, before they are. So
a receiver that is to take ticket 7 and has received up to 4 receives 5, 6 and 7. It does so although the messages of 5
and 6 are lost, rest, or belong to transfers that have ended. What it received early it keeps for a while.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Annotated

import msgspec

from mesh.wire.bounds import MAX_NAME, Count, Name

REMEMBERED = 64


class Announcement(msgspec.Struct, frozen=True):
    """The first payload frame of a `Blocks` message by ``nccl``.

    ``ticket`` None: the channel is not ready, the bytes are in the frames that follow. ``recent``: tickets and sizes in
    bytes of the last sends, this one included.
    """

    life: Name  # of the sending process
    number: Count  # of the channel, among those of that life
    unique_id: Annotated[bytes, msgspec.Meta(max_length=MAX_NAME)]  # of the NCCL communicator
    ticket: Count | None = None
    recent: Annotated[list[tuple[Count, Count]], msgspec.Meta(max_length=REMEMBERED)] = []


class GapError(RuntimeError):
    """A send between the last received one and the wanted one is not announced: nobody knows its size."""


class Outbox:
    """The sender's end: which slots are in use by sends that are not finished, oldest first."""

    def __init__(self, num_slots: int) -> None:
        self._free = list(range(num_slots - 1, -1, -1))
        self._next = 0
        self._sent: dict[int, tuple[int, float]] = {}  # slot and deadline by ticket, oldest first
        self._recent: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def tickets(self) -> list[int]:
        return list(self._sent)

    @property
    def free_slot(self) -> int | None:
        """The slot that the next send will have."""
        return self._free[-1] if self._free else None

    def add(self, num_bytes: int, deadline: float) -> int:
        """A send from the free slot begins: its ticket."""
        ticket, self._next = self._next, self._next + 1
        self._sent[ticket] = self._free.pop(), deadline
        self._recent.append((ticket, num_bytes))
        return ticket

    def finish(self, ticket: int) -> None:
        """Note that the slot of the ticket was read."""
        self._free.append(self._sent.pop(ticket)[0])

    def recent(self) -> list[tuple[int, int]]:
        return list(self._recent)

    def is_overdue(self, now: float) -> bool:
        """May be asked while another thread sends."""
        return any(now >= deadline for _, deadline in tuple(self._sent.values()))


class Inbox:
    """The receiver's end: which slots hold what was received and not yet taken, oldest first."""

    def __init__(self, num_slots: int) -> None:
        self._free = list(range(num_slots - 1, -1, -1))
        self._next = 0
        self._kept: OrderedDict[int, int] = OrderedDict()  # ticket: slot

    def missing(self, ticket: int, recent: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Tickets and sizes of what must be received, in order, to have ``ticket``. Raise `GapError` if unknown."""
        sizes = dict(recent)
        wanted = range(self._next, ticket + 1)
        if any(number not in sizes for number in wanted):
            raise GapError(f"sends {self._next} to {ticket} are wanted, {sorted(sizes)} are announced")
        return [(number, sizes[number]) for number in wanted]

    def receive(self, ticket: int) -> int:
        """The slot to receive the next send into; what was kept for longest makes room."""
        assert ticket == self._next, "sends come in order"
        if not self._free:
            self._free.append(self._kept.popitem(last=False)[1])
        self._next += 1
        slot = self._kept[ticket] = self._free.pop()
        return slot

    def take(self, ticket: int) -> int | None:
        """The slot that holds a send, until `give_back`; None: it had to make room, or is taken."""
        return self._kept.pop(ticket, None)

    def give_back(self, slot: int) -> None:
        self._free.append(slot)
