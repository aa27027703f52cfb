"""A place for services that lost their last engine, without a search."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mesh.topology.schema import Topology
from router.placement.change.obstacles import Obstacles
from router.placement.search.plan import Group, Plan


def _able(service: str, wanted: Plan, present: Plan, obstacles: Obstacles) -> list[Group]:
    """Engines that could take it."""
    return [
        group for group in wanted.groups if obstacles.against(present, wanted.with_groups(group.plus(service))) is None
    ]


def restored(
    present: Plan, services: Mapping[str, Sequence[str]], topology: Topology, obstacles: Obstacles
) -> Plan | None:
    """The present plan with these services, too, by name, as far as an engine can take them; None if none can.

    They go to the engines named, which had them before; else where the topology has them; else to the engine that
    holds the fewest. One that could not load it is asked again if no other can be.
    """
    own = {spec.id: spec.services for spec in topology.engines}
    wanted = present
    for service, before in services.items():
        able = _able(service, wanted, present, obstacles) or _able(
            service, wanted, present, replace(obstacles, failed=frozenset())
        )
        there = [group for group in able if group.id in before]
        there = there or [group for group in able if service in own.get(group.id, ())]
        for group in there or sorted(able, key=lambda group: (len(group.services), group.id))[:1]:
            wanted = wanted.with_groups(group.plus(service))
    return wanted if wanted != present else None
