"""One host of a mesh as a Ray actor."""

from collections.abc import Sequence
from typing import Any

import ray

from mesh.cluster.host_runner import HostAssignment, HostRunner, HostState
from mesh.cluster.log_sources import LocalLogs, logs_of_host
from mesh.cluster.ports import free_ports_from
from mesh.cluster.ray.asking import ask
from mesh.directory import num_ports
from mesh.process.log_reader import LogPage, Positions
from mesh.topology.schema import Topology
from mesh.wire.hosts import HostPlace

KEEPER_S = 60.0  # for the keeper to answer; Ray may be restarting it


class HostActor:
    """Made by the keeper, and by Ray again wherever it finds room after the loss of a node."""

    def __init__(self, host: str, assignment: HostAssignment, namespace: str, keeper: str) -> None:
        self._host = host
        self._namespace = namespace
        self._keeper_name = keeper
        self._runner = HostRunner(host, assignment, self._come_up)

    def state(self, places: Sequence[HostPlace]) -> HostState:
        """Say how the host is. ``places``: where hosts are now."""
        self._runner.hosts_moved(places)
        return self._runner.state()

    def change(self, assignment: HostAssignment) -> None:
        """Run this topology from now on."""
        self._runner.change(assignment)

    def stop(self, now: bool) -> None:
        """Drain and end all processes of the host."""
        self._runner.stop(now)

    def last_logs(self, process: str | None, number: int) -> LogPage | None:
        """Return the last lines of a process of this host, or of all."""
        return self._logs().last(process, number)

    def more_logs(self, process: str | None, positions: Positions) -> LogPage:
        """Return what was logged since."""
        return self._logs().more(process, positions)

    def logged_processes(self) -> list[str]:
        """Return whose logs are there."""
        return self._logs().processes()

    def _logs(self) -> LocalLogs:
        return logs_of_host(self._runner.topology(), self._host)

    def _come_up(self, topology: Topology) -> list[HostPlace]:
        """Take ports that are free on this node, and learn from the keeper where everybody else is."""
        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        keeper: Any = ray.get_actor(self._keeper_name, namespace=self._namespace)
        spec, count = topology.host(self._host), num_ports(topology, self._host)
        first, bind, places = spec.base_port, spec.bind or address, None
        while places is None:
            base_port = free_ports_from(first, count, bind)
            places = ask(keeper, "came_up", self._host, address, base_port, bind, timeout_s=KEEPER_S)
            first = base_port + count
        found: list[HostPlace] = places
        return found
