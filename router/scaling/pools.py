"""Engines that are alike and are counted together: those of one table of the topology."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mesh.topology.schema import Topology
from mesh.wire.control import Role
from mesh.wire.status import EngineStatus


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of engines, of which at ``least`` so many run. The number of the others may change, if ``is_scaled``."""

    name: str
    role: Role
    engines: tuple[str, ...]
    least: int
    is_scaled: bool

    @property
    def most(self) -> int:
        return len(self.engines)


def pools_of(topology: Topology) -> tuple[Pool, ...]:
    """One that always runs whole is not scaled: what its user stops stays stopped."""
    tables: dict[str, list[str]] = {}
    for spec in topology.engines:
        tables.setdefault(spec.pool or spec.id, []).append(spec.id)
    return tuple(_pool(topology, name, tuple(engines)) for name, engines in tables.items())


def _pool(topology: Topology, name: str, engines: tuple[str, ...]) -> Pool:
    first = topology.engine(engines[0])
    return Pool(name, first.role, engines, first.at_least, first.at_least < len(engines))


class EnginePhase(StrEnum):
    """Phase of an engine, as far as scaling is concerned."""

    SERVING = "serving"
    STARTING = "starting"
    LEAVING = "leaving"
    STANDBY = "standby"
    DOWN = "down"  # it died, and did not come back soon
    UNKNOWN = "unknown"  # its supervisor was not heard


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as it is now."""

    pool: Pool
    phases: Mapping[str, EnginePhase]
    statuses: Mapping[str, EngineStatus]  # of those that serve

    def count(self, *phases: EnginePhase) -> int:
        return sum(phase in phases for phase in self.phases.values())

    @property
    def num_running(self) -> int:
        """The number of engines that serve, or soon will."""
        return self.count(EnginePhase.SERVING, EnginePhase.STARTING)

    @property
    def services(self) -> set[str]:
        return {service.name for status in self.statuses.values() for service in status.services}
