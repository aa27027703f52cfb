"""A request as a discipline sees it."""

from dataclasses import dataclass

from engines.engine_request import EngineRequest


@dataclass(slots=True, eq=False)
class Entrant:
    """A request as a discipline sees it. ``place``: within its service, phase and level, smaller first; it changes only
    when the request runs.
    """

    request: EngineRequest
    number: int  # of those that came here
    used_s: float = 0.0  # by the steps that it took part in
    level: int = 0
    first_level: int = 0
    place: float = 0.0
    is_here: bool = True

    @property
    def service(self) -> str:
        return self.request.spec.service

    @property
    def priority(self) -> int:
        return self.request.spec.priority

    @property
    def waits_since(self) -> float:
        """The time at which it would have begun to wait, had it waited in one go."""
        return self.request.came_at + self.used_s
