"""Shortest job first, by what is known of a request's execution time beforehand: its service's mean."""

from math import inf

from engines.scheduling.disciplines.entrant import Entrant
from engines.scheduling.disciplines.profile import ProfileOf


class ShortestJob:
    """Requests of one service go first come, first served."""

    def __init__(self, profiles: ProfileOf) -> None:
        self._profiles = profiles

    def came(self, entrant: Entrant) -> None:
        entrant.place = entrant.request.arrived_at

    def ran(self, entrant: Entrant) -> None:
        """Ignore the step: it does not tell how much of the request is left."""

    def steady_s(self, entrant: Entrant) -> float:
        return inf

    def newcomer(self, service: str, batch: int, now: float) -> tuple[float, ...]:
        return (self._profiles[service].mean_s, now)

    def value(self, entrant: Entrant, batch: int) -> tuple[float, ...]:
        return (self._profiles[entrant.service].mean_s, entrant.place)
