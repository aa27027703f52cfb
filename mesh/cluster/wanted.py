"""Decides which hosts are to be held: those with something to run, as long as they have. Pure."""

from collections.abc import Iterable
from math import inf

from mesh.cluster.registry import is_standby
from mesh.topology.schema import EngineSpec, Topology
from mesh.wire.status import ENDED

IDLE_S = 30.0  # after which a host is given back: all its engines have ended, or nobody asked again for its room
BEGINNING = ("preparing", "starting")  # states of hosts


class WantedHosts:
    """The hosts of a topology that are to be held.

    A host whose engines are on standby is wanted once one of them is asked for. One whose engines have all ended is
    wanted no more.
    """

    def __init__(self, topology: Topology, used: Iterable[str]) -> None:
        """``used``: hosts that are held already."""
        self._topology = topology
        needed = [host.name for host in topology.hosts if not is_standby(topology, host.name)]
        self._until = dict.fromkeys([*needed, *used], inf)

    def __repr__(self) -> str:
        return f"<WantedHosts {self._until}>"

    def ask(self, process: str, now: float) -> None:
        """Want the host of an engine that is to run. Names of others are ignored."""
        for spec in self._topology.processes:
            if spec.id == process and isinstance(spec, EngineSpec):
                self._until[spec.host] = max(self._until.get(spec.host, now), now + IDLE_S)

    def hear(self, host: str, state: str, children: Iterable[str], now: float) -> None:
        """Take how a host is, and how its processes are."""
        if state in BEGINNING or any(child not in ENDED for child in children):
            self._until[host] = inf
        else:
            self._until[host] = min(self._until.get(host, inf), now + IDLE_S)

    def hosts(self, now: float) -> list[str]:
        """Return the hosts that are wanted now, in the topology's order."""
        return [host.name for host in self._topology.hosts if self._until.get(host.name, now) > now]
