"""Keeps the last statuses of supervisors and other gateways, for those who watch the mesh. Nothing decides by it."""

from collections.abc import Collection
from typing import NamedTuple

from mesh.addresses import owner_of
from mesh.wire.messages import BroadcastMessage
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
        self._known_supervisors = frozenset(supervisors)
        self._processes = frozenset(map(owner_of, processes))
        self._silence_s = silence_s
        self._supervisors: dict[str, SupervisorStatus] = {}
        self._gateways: dict[str, _Heard] = {}  # by the name that each has in the mesh, oldest word first

    def __repr__(self) -> str:
        return f"<HeardProcesses of {len(self._supervisors)} supervisors, {len(self._gateways)} gateways>"

    def hear_supervisor(self, process: str, status: SupervisorStatus) -> None:
        if process in self._known_supervisors:
            self._supervisors[process] = status

    def hear_gateway(self, process: str, status: GatewayStatus, now: float) -> None:
        if owner_of(process) in self._processes:
            self._gateways.pop(process, None)
            self._gateways[process] = _Heard(status, now)

    def renew(self, process: str, now: float) -> None:
        """Take a pulse of a process: it lives, though it says nothing new."""
        if (known := self._gateways.get(process)) is not None:
            self._gateways[process] = _Heard(known.status, now)

    def forget(self, process: str) -> None:
        """Forget a process that has ended."""
        self._gateways.pop(process, None)

    def children(self) -> dict[str, ChildStatus]:
        """Processes by name, as their supervisors see them."""
        children = (child for status in self._supervisors.values() for child in status.children)
        return {owner_of(child.process): child for child in children if owner_of(child.process) in self._processes}

    def statuses(self, now: float) -> dict[str, BroadcastMessage]:
        """Return the last statuses of all supervisors, and of the gateways that are not silent."""
        return {**self._supervisors, **self._speaking(now)}

    def admin_urls(self, now: float) -> dict[str, str]:
        """Return where operators reach the other gateways, by id. Of two incarnations of one the later word counts."""
        return {owner_of(name): status.admin_url for name, status in self._speaking(now).items() if status.admin_url}

    def _speaking(self, now: float) -> dict[str, GatewayStatus]:
        return {name: one.status for name, one in self._gateways.items() if now - one.at <= self._silence_s}
