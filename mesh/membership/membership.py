"""Decides which processes are alive, by beacons with incarnation numbers and by leases. Each process has its own view.

Every status is a beacon. A process that was silent for longer than its lease counts as dead. A higher incarnation
number means that the process started again, so its older incarnation is dead whatever its lease says. Beacons of an
old incarnation still arrive now and then, through queues and slow networks. They change nothing, even after the
process was lost. A supervisor sees its processes end and says so in its own status. Nobody waits for the lease of such
an incarnation, and no late beacon brings it back.

A process may have lost the file with its last number, on a machine whose clock went back. Then its number is lower
than that of its past incarnation. It is believed once it was heard for `PATIENCE` leases, without a gap of a lease,
while the newer one was silent: what a dead process said comes late in a burst, or ends before.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from math import inf

import msgspec

from mesh.wire.frames import Sender
from mesh.wire.status import SupervisorStatus

PATIENCE = 10  # leases
UNHEARD = 0  # the incarnation of a process that was never heard


class Joined(msgspec.Struct, frozen=True):
    """A process that was unknown or lost is alive."""

    sender: Sender


class Restarted(msgspec.Struct, frozen=True):
    """A process lives anew: whatever ``previous`` held is gone."""

    sender: Sender
    previous: Sender


class Renewed(msgspec.Struct, frozen=True):
    """A known life was heard again."""

    sender: Sender


class Stale(msgspec.Struct, frozen=True):
    """A beacon of an old incarnation, or one that a newer one overtook: ignore what it says."""

    sender: Sender


class Lost(msgspec.Struct, frozen=True):
    """A process was silent for longer than its lease, or is known to have ended."""

    sender: Sender


Observation = Joined | Restarted | Renewed | Stale


@dataclass(slots=True)
class _Claim:
    """An incarnation with a number below the newest one that speaks on and on."""

    incarnation: int
    since: float
    heard_at: float


class Membership:
    """One process's view of its peers. Times are seconds of any one monotonic clock."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._newest: dict[str, int] = {}  # incarnation by process, kept after a loss
        self._declared_dead: dict[str, int] = {}  # the newest incarnation known to have ended
        self._claims: dict[str, _Claim] = {}  # of processes that do not live, by what is known
        self._leases: OrderedDict[str, float] = OrderedDict()  # ends by process, of the living only; earliest first

    def __repr__(self) -> str:
        alive = ", ".join(f"{process}@{self._newest[process]}" for process in sorted(self._leases))
        return f"<Membership alive=[{alive}] lost={sorted(self._newest.keys() - self._leases.keys())}>"

    def observe(self, sender: Sender, now: float) -> Observation:
        """Take a beacon. Anything but `Stale` renews the lease of its sender."""
        newest = self._newest.get(sender.process)
        if newest == sender.incarnation != UNHEARD and sender.process in self._leases and not self._claims:
            self._renew_lease(sender.process, now)  # as nearly always
            return Renewed(sender)
        is_old = sender.incarnation < (newest or 0) or sender.incarnation <= self._declared_dead.get(sender.process, -1)
        if is_old and not self._persists(sender, now):
            return Stale(sender)
        if is_old:
            self._declared_dead.pop(sender.process, None)
        self._claims.pop(sender.process, None)
        was_alive = sender.process in self._leases
        self._newest[sender.process] = sender.incarnation
        self._renew_lease(sender.process, now)
        if newest in (None, UNHEARD) or not was_alive:
            return Joined(sender)
        if sender.incarnation != newest:
            return Restarted(sender, Sender(sender.process, newest))
        return Renewed(sender)

    def _renew_lease(self, process: str, now: float) -> None:
        self._leases[process] = now + self._lease_s
        if self._lease_s < inf:
            self._leases.move_to_end(process)

    def _persists(self, sender: Sender, now: float) -> bool:
        """Whether an incarnation that ought to be over has been heard for so long that it cannot be."""
        if self.is_alive(sender.process):
            self._claims.pop(sender.process, None)
            return False
        claim = self._claims.get(sender.process)
        is_the_same = claim is not None and claim.incarnation == sender.incarnation
        if claim is None or not is_the_same or now - claim.heard_at >= self._lease_s:
            claim = self._claims[sender.process] = _Claim(sender.incarnation, now, now)
        claim.heard_at = now
        return now - claim.since >= PATIENCE * self._lease_s

    def renew(self, sender: Sender, now: float) -> None:
        """A sign of life that says no more. It renews the lease of a life that is known, and tells of no other."""
        if self.is_current(sender):
            self.observe(sender, now)

    def expect(self, process: str, now: float) -> None:
        """Something here depends on a process that others know: unless it is heard, its lease ends, too.

        Be the incarnation that was known here declared dead: whoever told of the process may know its next one.
        """
        if process in self._leases:
            return
        if self._newest.get(process, UNHEARD) <= self._declared_dead.get(process, UNHEARD):
            self._newest[process] = UNHEARD
        self._leases[process] = now + self._lease_s

    def expire(self, now: float) -> list[Lost]:
        """Declare dead whoever's lease has ended."""
        ended = [process for process, _ in takewhile(lambda lease: lease[1] <= now, self._leases.items())]
        for process in ended:
            del self._leases[process]
        return [Lost(Sender(process, self._newest[process])) for process in ended]

    def declare_dead(self, ended: Sender) -> Lost | None:
        """Note that an incarnation and all before it have ended. Return it if it was alive; a newer one goes on."""
        process, incarnation = ended
        self._declared_dead[process] = max(incarnation, self._declared_dead.get(process, 0))
        if not self.is_alive(process) or not UNHEARD < self._newest[process] <= incarnation:
            return None  # what was not heard may be a newer incarnation; its lease tells
        del self._leases[process]
        return Lost(Sender(process, self._newest[process]))

    def next_deadline(self) -> float | None:
        """Return when the next lease ends; None: none does."""
        return None if self._lease_s == inf else next(iter(self._leases.values()), None)

    def is_alive(self, process: str) -> bool:
        return process in self._leases

    def is_current(self, sender: Sender) -> bool:
        """Return whether this is the newest known life of its process and alive."""
        return sender.process in self._leases and self._newest[sender.process] == sender.incarnation

    def alive(self) -> Mapping[str, int]:
        """Incarnation by process, of the living."""
        return {process: self._newest[process] for process in self._leases}

    def check_invariants(self) -> None:
        assert self._leases.keys() <= self._newest.keys(), f"a lease without an incarnation: {self!r}"
        assert list(self._leases.values()) == sorted(self._leases.values()), f"leases are out of order: {self!r}"
        heard = [process for process in self._leases if self._newest[process] > UNHEARD]
        dead = [process for process in heard if self._newest[process] <= self._declared_dead.get(process, UNHEARD)]
        assert not dead, f"the dead live: {self!r}"


def ended_incarnations(supervisor: str, status: SupervisorStatus, supervisor_of: Mapping[str, str]) -> list[Sender]:
    """The incarnations that ``supervisor`` has seen end, of processes that it supervises and no others.

    It repeats them in every status, so one that is lost is made good by the next.
    """
    return [
        Sender(child.process, child.ended_incarnation)
        for child in status.children
        if child.ended_incarnation and supervisor_of.get(child.process) == supervisor
    ]
