"""Loads that failed, as engines tell of them: each is remembered, whoever asked for it and whenever it ended.

A plan is given up at the first one, while other engines still load. What those cannot have is heard later.
"""

from collections.abc import Mapping

from mesh.wire.status import EngineStatus, FailedLoad

FORGIVEN_AFTER = 5  # intervals, in which an engine is not told again to load what it could not

Pair = tuple[str, str]  # an engine and a service


class FailedLoads:
    def __init__(self) -> None:
        self._told: dict[Pair, FailedLoad] = {}  # by engines when they were last looked at
        self._seen_in: dict[Pair, int] = {}  # the interval

    def __repr__(self) -> str:
        return f"<FailedLoads {self._seen_in}>"

    def look(self, statuses: Mapping[str, EngineStatus], interval: int) -> list[str]:
        """A line for each that is new."""
        told = {(engine, one.service): one for engine, status in statuses.items() for one in status.failed_loads}
        new = {pair: failed for pair, failed in told.items() if self._told.get(pair) != failed}
        self._told = told
        self._seen_in.update(dict.fromkeys(new, interval))
        return [f"{engine} did not load {service}: {failed.reason}" for (engine, service), failed in new.items()]

    def lately(self, interval: int) -> list[Pair]:
        """Return the loads that failed lately and are not to be tried."""
        return [pair for pair, seen_in in self._seen_in.items() if interval <= seen_in + FORGIVEN_AFTER]
