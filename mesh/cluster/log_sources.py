"""Sources of the logs of a mesh: this machine, or those on which a cluster's engine holds its hosts."""

import sys
from collections.abc import Sequence
from typing import Any, Protocol

from mesh.addresses import owner_of, runtime_dir, supervisor_id
from mesh.process.log_reader import LogPage, Positions, known_processes, last_page, next_page
from mesh.topology.schema import ClusterEngine, Topology

ANSWER_S = 10.0  # that a host has


class LogSource(Protocol):
    """The logs of one machine."""

    def last(self, process: str | None, number: int) -> LogPage | None:
        """Return the last lines of a process, or of all; None: there are no logs of it here."""

    def more(self, process: str | None, positions: Positions) -> LogPage | None:
        """Return what was logged since; None: nobody knows now."""

    def processes(self) -> list[str]:
        """Return whose logs are there."""


def log_sources(topology: Topology) -> Sequence[LogSource]:
    """Return where the logs of a mesh are. Raise `CommandError` if a cluster's engine is to know and does not."""
    if topology.cluster is None or topology.cluster.on is not ClusterEngine.RAY:
        return [LocalLogs(topology)]
    from mesh.cluster.ray.session import find_hosts

    return [HostLogs(host, actor) for host, actor in find_hosts(topology).items()]


class LocalLogs:
    """``processes``: those whose logs are looked at; None: all that are here."""

    def __init__(self, topology: Topology, processes: Sequence[str] | None = None) -> None:
        self._folder = runtime_dir(topology) / "logs"
        self._processes = processes

    def __repr__(self) -> str:
        return f"<LocalLogs {self._folder}>"

    def last(self, process: str | None, number: int) -> LogPage | None:
        return last_page(self._folder, self._asked(process), number)

    def more(self, process: str | None, positions: Positions) -> LogPage:
        return next_page(self._folder, self._asked(process), positions)

    def processes(self) -> list[str]:
        known = known_processes(self._folder)
        return known if self._processes is None else [one for one in known if owner_of(one) in self._processes]

    def _asked(self, process: str | None) -> Sequence[str] | None:
        if process is None:
            return self._processes
        return [process] if self._processes is None or owner_of(process) in self._processes else []


class HostLogs:
    """The logs of a host that Ray holds; its actor reads them."""

    def __init__(self, host: str, actor: Any) -> None:
        self._host = host
        self._actor = actor

    def __repr__(self) -> str:
        return f"<HostLogs {self._host}>"

    def last(self, process: str | None, number: int) -> LogPage | None:
        page: LogPage | None = self._ask("last_logs", process, number)
        return page

    def more(self, process: str | None, positions: Positions) -> LogPage | None:
        page: LogPage | None = self._ask("more_logs", process, positions)
        return page

    def processes(self) -> list[str]:
        return self._ask("logged_processes") or []

    def _ask(self, method: str, *arguments: object) -> Any:
        import ray

        try:
            return ray.get(getattr(self._actor, method).remote(*arguments), timeout=ANSWER_S)
        except ray.exceptions.RayError:
            sys.stderr.write(f"note: host {self._host} does not answer; its logs are left out\n")
            return None


def logs_of_host(topology: Topology, host: str) -> LocalLogs:
    """Return the logs of a host's own processes: others may share its machine."""
    mine = [spec.id for spec in topology.processes if spec.host == host]
    return LocalLogs(topology, [supervisor_id(host), *mine])
