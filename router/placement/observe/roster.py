"""Keeps which engines live, what they said last, and which services somebody is to serve."""

from collections.abc import Iterable, Mapping

from mesh.membership.membership import Joined, Membership, Restarted, Stale
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.status import EngineStatus


class Roster:
    """Times are of any one monotonic clock."""

    def __init__(self, lease_s: float) -> None:
        self.wanted: set[str] = set()  # services
        self._membership = Membership(lease_s)
        self._last: dict[str, EngineStatus] = {}  # of engines that live and of those that did
        self._held: dict[str, tuple[int, set[str]]] = {}  # in which incarnation, and what, when they were ready last
        self._forgot: dict[str, set[str]] = {}  # what engines held before they were started again

    def __repr__(self) -> str:
        return f"<Roster {self._membership!r}, wanted: {sorted(self.wanted)}>"

    @property
    def statuses(self) -> Mapping[str, EngineStatus]:
        """The statuses of the living, by id."""
        return {engine: status for engine, status in sorted(self._last.items()) if self._membership.is_alive(engine)}

    @property
    def ready(self) -> Mapping[str, EngineStatus]:
        return {engine: status for engine, status in self.statuses.items() if status.state is ProcessState.READY}

    @property
    def remembered(self) -> Iterable[EngineStatus]:
        """Return the statuses that are remembered, of the living first: what the dead said of costs is better than
        nothing.
        """
        alive = self.statuses
        return [*alive.values(), *(status for engine, status in self._last.items() if engine not in alive)]

    def hear(self, sender: Sender, status: EngineStatus, now: float) -> None:
        """Statuses of old incarnations, and those that were overtaken by a newer one, change nothing."""
        observation = self._membership.observe(sender, now)
        known = self._last.get(sender.process)
        if isinstance(observation, Stale):
            return
        is_new_life = known is None or isinstance(observation, Joined | Restarted)
        if known is not None and not is_new_life and status.seq < known.seq:
            return
        self._last[sender.process] = status
        if status.state is ProcessState.READY:
            self._hear_ready(sender, served(status))

    def _hear_ready(self, sender: Sender, holds: set[str]) -> None:
        incarnation, held = self._held.get(sender.process, (sender.incarnation, set[str]()))
        self._held[sender.process] = sender.incarnation, holds
        self.wanted |= holds
        if incarnation == sender.incarnation:
            self._let_go(held - holds)
        else:
            self._forgot[sender.process] = held - holds

    def who_forgot(self, service: str) -> list[str]:
        """Engines that are ready again, and held it before they were started anew."""
        return [engine for engine in self.ready if service in self._forgot.get(engine, ())]

    def _let_go(self, services: set[str]) -> None:
        """Taken from an engine that lives on: whoever did that wanted it."""
        self.wanted -= services - {name for status in self.statuses.values() for name in served(status)}

    def declare_dead(self, ended: Sender) -> None:
        self._membership.declare_dead(ended)

    def expire(self, now: float) -> None:
        self._membership.expire(now)

    def unserved(self) -> list[str]:
        """Services that somebody is to serve, and nobody does."""
        return sorted(self.wanted - {name for status in self.ready.values() for name in served(status)})


def served(status: EngineStatus) -> set[str]:
    return {service.name for service in status.services if not service.is_leaving}
