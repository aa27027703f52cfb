"""Keeps what supervisors and other gateways said last, for those who watch the mesh. Nothing is decided by it."""

from collections.abc import Collection
from typing import NamedTuple

from mesh.addresses import owner_of
from mesh.wire.status import ChildStatus, GatewayStatus, SupervisorStatus


class _Heard(NamedTuple):
    status: GatewayStatus
    at: float


class HeardProcesses:
    """Knows the processes that supervisors watch, and where the other gateways are.

    ``processes`` are those of the topology: others are not kept, so that nobody can make this grow. A gateway that was
    not heard for ``silence_s`` is forgotten.
    """

    def __init__(self, supervisors: Collection[str], processes: Collection[str], silence_s: float) -> None:
        self._supervisors = frozenset(supervisors)
        self._processes = frozenset(map(owner_of, processes))
        self._silence_s = silence_s
        self._children: dict[str, tuple[ChildStatus, ...]] = {}
        self._gateways: dict[str, _Heard] = {}

    def __repr__(self) -> str:
        return f"<HeardProcesses of {len(self._children)} supervisors, {len(self._gateways)} gateways>"

    def hear_supervisor(self, process: str, status: SupervisorStatus) -> None:
        if process in self._supervisors:
            known = self._processes
            self._children[process] = tuple([one for one in status.children if owner_of(one.process) in known])

    def hear_gateway(self, process: str, status: GatewayStatus, now: float) -> None:
        """Two incarnations of a gateway may live at a time: the later word counts."""
        if (gateway := owner_of(process)) in self._processes:
            self._gateways[gateway] = _Heard(status, now)

    def children(self) -> dict[str, ChildStatus]:
        """Processes by name, as their supervisors see them."""
        return {owner_of(child.process): child for children in self._children.values() for child in children}

    def admin_urls(self, now: float) -> dict[str, str]:
        """Return where operators reach the other gateways, by id."""
        heard = {name: one.status.admin_url for name, one in self._gateways.items() if now - one.at <= self._silence_s}
        return {name: url for name, url in heard.items() if url}
