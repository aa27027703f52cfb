"""Defines what looks on while a simulation runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from engines.core import EngineCore
from engines.scheduling.service import Service
from engines.settings import EngineSettings
from mesh.wire.transfers import MemoryRef


@dataclass(frozen=True, slots=True)
class CoreParts:
    """What an `EngineCore` is made of."""

    settings: EngineSettings
    services: Mapping[str, Service]
    can_open: Callable[[str, MemoryRef], bool]

    def core(self) -> EngineCore:
        """One that nobody looks at."""
        return EngineCore(self.settings, self.services, self.can_open)


class Observer(Protocol):
    """Makes engine cores whose events it sees."""

    def core(self, parts: CoreParts) -> EngineCore: ...


class ObservedCore(EngineCore):
    """A core for observers to derive from."""

    def __init__(self, parts: CoreParts) -> None:
        super().__init__(parts.settings, parts.services, parts.can_open)
