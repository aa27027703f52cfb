"""A place for services that lost their last engine, without a search."""

from collections.abc import Iterable

from mesh.topology.schema import Topology
from router.placement.plan import Plan


def restored(present: Plan, services: Iterable[str], topology: Topology) -> Plan | None:
    """The present plan with these services, too; None if it has no engine.

    They go where the topology has them, else to the engine that holds the fewest.
    """
    if not present.groups:
        return None
    own = {spec.id: spec.services for spec in topology.engines}
    for service in services:
        there = [group for group in present.groups if service in own.get(group.id, ())]
        for group in there or [min(present.groups, key=lambda group: (len(group.services), group.id))]:
            present = present.with_groups(group.plus(service))
    return present
