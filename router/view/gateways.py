"""Keeps which of the other gateways take requests, as one gateway hears it from their statuses."""

from collections.abc import Iterable

from mesh.membership.membership import Lost, Membership, Stale
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.status import GatewayStatus


class OtherGateways:
    """Keeps the other gateways that are alive. ``ready``: ids of those that live and take requests. What changes it
    says so.
    """

    def __init__(self, lease_s: float) -> None:
        self.ready: frozenset[str] = frozenset()
        self._membership = Membership(lease_s)

    def __repr__(self) -> str:
        return f"<OtherGateways {sorted(self.ready)}>"

    def hear(self, sender: Sender, status: GatewayStatus, now: float) -> bool:
        if isinstance(self._membership.observe(sender, now), Stale):
            return False
        me = {sender.process}
        return self._become(self.ready | me if status.state is ProcessState.READY else self.ready - me)

    def renew(self, sender: Sender, now: float) -> None:
        """Take a pulse: the gateway lives."""
        self._membership.renew(sender, now)

    def expire(self, now: float) -> bool:
        return self._lose(self._membership.expire(now))

    def declare_dead(self, ended: Sender) -> bool:
        """An incarnation of one has ended."""
        lost = self._membership.declare_dead(ended)
        return lost is not None and self._lose([lost])

    def next_deadline(self) -> float | None:
        return self._membership.next_deadline()

    def _lose(self, lost: Iterable[Lost]) -> bool:
        return self._become(self.ready - {event.sender.process for event in lost})

    def _become(self, ready: frozenset[str]) -> bool:
        is_new = ready != self.ready
        self.ready = ready
        return is_new
