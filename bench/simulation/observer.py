"""What looks on while a simulation runs."""

from collections.abc import Callable, Mapping
from typing import Protocol

from engines.core import EngineCore
from engines.settings import EngineSettings
from engines.status import Service
from mesh.messages import MemoryRef


class Observer(Protocol):
    """Makes engine cores whose events it sees."""

    def core(
        self,
        settings: EngineSettings,
        services: Mapping[str, Service],
        can_open: Callable[[str, MemoryRef], bool],
        expect: Callable[[str, float], None],
    ) -> EngineCore: ...
