"""First come, first served: by arrival at the mesh, across services and phases."""

from math import inf

from engines.scheduling.disciplines.entrant import Entrant


class FirstCome:
    def came(self, entrant: Entrant) -> None:
        entrant.place = entrant.request.arrived_at

    def ran(self, entrant: Entrant) -> None:
        """Ignore the step: nothing that a request has run changes when it came."""

    def steady_s(self, entrant: Entrant) -> float:
        return inf

    def newcomer(self, service: str, batch: int, now: float) -> tuple[float, ...]:
        return (now,)

    def value(self, entrant: Entrant, batch: int) -> tuple[float, ...]:
        return (entrant.place,)
