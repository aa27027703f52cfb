"""A place for services that lost their last engine, without a search."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mesh.topology.schema import Topology
from router.placement.change.obstacles import Obstacles
from router.placement.observe.roster import Roster
from router.placement.search.plan import Group, Plan

SILENT_S = 10.0  # after which an engine is gone, and a service without an engine is given one


class UnservedServices:
    """Services that lost their last engine, and since when."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._told_in = 0  # the interval

    def __repr__(self) -> str:
        return f"<UnservedServices {self._since}>"

    def due(self, roster: Roster, interval: int, now: float) -> dict[str, list[str]]:
        """Return, at most once an interval, those that are to be given an engine, with those that had them before.

        Not at once, lest that one comes back with it; if it comes back without, there is nothing to wait for.
        """
        self._since = {name: self._since.get(name, now) for name in roster.unserved()}
        before = {name: roster.who_forgot(name) for name in self._since}
        due = {name: those for name, those in before.items() if those or now >= self._since[name] + SILENT_S}
        if not due or self._told_in == interval:
            return {}
        self._told_in = interval
        return due


def restored(
    present: Plan, services: Mapping[str, Sequence[str]], topology: Topology, obstacles: Obstacles
) -> Plan | None:
    """The present plan with these services, too, by name, as far as an engine can take them; None if none can.

    They go to the engines named, which had them before; else where the topology has them; else to the engine that
    holds the fewest. One that could not load it is asked again if no other can be. If no engine can hold it beside what
    it holds, one gives up a service that others hold, too.
    """
    own = {spec.id: spec.services for spec in topology.engines}
    wanted = present
    for service, before in services.items():
        beside = [group.plus(service) for group in wanted.groups]
        able = (
            _reachable(beside, wanted, present, obstacles)
            or _reachable(beside, wanted, present, replace(obstacles, failed=frozenset()))
            or _reachable(list(_instead(service, wanted)), wanted, present, obstacles)[:1]
        )
        there = [group for group in able if group.id in before]
        there = there or [group for group in able if service in own.get(group.id, ())]
        for group in there or sorted(able, key=lambda group: (len(group.services), group.id))[:1]:
            wanted = wanted.with_groups(group)
    return wanted if wanted != present else None


def _instead(service: str, wanted: Plan) -> Iterator[Group]:
    """Engines with it in the place of one that others hold, too."""
    num_holders = Counter(name for group in wanted.groups for name in group.services)
    for group in wanted.groups:
        yield from (group.minus(name).plus(service) for name in group.services if num_holders[name] > 1)


def _reachable(groups: Sequence[Group], wanted: Plan, present: Plan, obstacles: Obstacles) -> list[Group]:
    """Those that their engines can become."""
    return [group for group in groups if obstacles.against(present, wanted.with_groups(group)) is None]
