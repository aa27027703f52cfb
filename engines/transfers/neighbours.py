"""The engines that one engine compares itself with under `[rescheduling]`, so that not everybody hears everybody.

Engines that serve a service are divided into groups of at most `Rescheduling.neighbours`. All members of a group hear
each other, so they see the same engines and find the same pairs, as all engines of a small mesh do. The groups follow
from the topology alone. Each has its part of every role and of the engines on standby. Within these, engines that
follow each other in the file stay together: they are often on one host, where moves are cheap.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from math import ceil

from mesh.topology.schema import EngineSpec, Topology


class Neighbourhood:
    """The groups of one engine. They are worked out anew when its services change."""

    def __init__(self, topology: Topology, engine: str) -> None:
        self._topology = topology
        self._engine = engine
        self._services: frozenset[str] | None = None
        self._found: frozenset[str] = frozenset()

    def of(self, services: Collection[str]) -> frozenset[str]:
        """Return the other engines of its groups; all others if a service of its was not its own in the topology."""
        if self._services is None or self._services != services:
            self._services = frozenset(services)
            self._found = self._find() - {self._engine}
        return self._found

    def _find(self) -> frozenset[str]:
        rules, engines = self._topology.rescheduling, self._topology.own_engines
        everybody = frozenset(spec.id for spec in engines)
        if rules is None or len(engines) <= rules.neighbours:
            return everybody
        found = frozenset[str]()
        for service in self._services or ():
            members = _group(self._engine, [spec for spec in engines if service in spec.services], rules.neighbours)
            if not members:
                return everybody
            found |= members
        return found


def _group(engine: str, serving: Sequence[EngineSpec], most: int) -> frozenset[str]:
    """The group that has the engine; empty if it is not one of those that serve."""
    alike: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
    for spec in serving:
        alike[spec.role, spec.is_standby].append(spec.id)
    number = ceil(len(serving) / most)
    for index in range(number):
        members = [id_ for ids in alike.values() for id_ in ids[_part(ids, index, number)]]
        if engine in members:
            return frozenset(members)
    return frozenset()


def _part(ids: Sequence[str], index: int, number: int) -> slice:
    return slice(index * len(ids) // number, (index + 1) * len(ids) // number)
