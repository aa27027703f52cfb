"""Holds what all children of one supervisor are started with."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mesh.clock import Clock
from mesh.supervisor.processes.copies import TopologyCopy
from mesh.supervisor.processes.forks import ProcessSource
from mesh.supervisor.processes.restarts import RestartPolicy
from mesh.supervisor.processes.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a child is given by its supervisor. ``changed`` is called after each change of what a child's status is.

    ``start_s``: that a process has until it must be ready, ``drain_s`` to end when asked. ``is_takeover``: processes of
    the mesh run already, and one that cannot start ends nothing.
    """

    host: str
    runtime: Path
    topology: TopologyCopy
    start_s: float
    drain_s: float
    clock: Clock
    changed: Callable[[], None]
    source: ProcessSource
    make_restart_policy: Callable[[], RestartPolicy] = RestartPolicy
    make_watchdog: Callable[[], Watchdog] = Watchdog
    is_takeover: bool = False
