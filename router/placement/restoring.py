"""A place for services that lost their last engine, without a search."""

from collections.abc import Mapping, Sequence

from mesh.topology.schema import Topology
from router.placement.plan import Plan


def restored(present: Plan, services: Mapping[str, Sequence[str]], topology: Topology) -> Plan | None:
    """The present plan with these services, too, by name; None if it has no engine.

    They go to the engines named, which had them before; else where the topology has them; else to the engine that
    holds the fewest.
    """
    if not present.groups:
        return None
    own = {spec.id: spec.services for spec in topology.engines}
    for service, before in services.items():
        there = [group for group in present.groups if group.id in before]
        there = there or [group for group in present.groups if service in own.get(group.id, ())]
        for group in there or [min(present.groups, key=lambda group: (len(group.services), group.id))]:
            present = present.with_groups(group.plus(service))
    return present
