"""Services that a plan has no place for, and by how much they are too large for what is left."""

from collections.abc import Mapping

from router.placement.observe.requirements import Catalogue
from router.placement.search.plan import Group, Plan


def homeless(plan: Plan, catalogue: Catalogue) -> Mapping[str, str]:
    """Return by service why no group takes it, in one line. Empty if all are placed."""
    return {name: _why(name, plan, catalogue) for name in catalogue.services if name not in plan.services}


def _why(service: str, plan: Plan, catalogue: Catalogue) -> str:
    footprints = catalogue.footprints[service]
    groups = [group for group in plan.groups if group.num_devices in footprints]
    if not groups:
        return f"{service}: has profiles for {', '.join(map(str, sorted(footprints)))} devices; no group has so many"
    open_ones = [group for group in groups if len(group.services) < catalogue.max_sharing]
    if not open_ones:
        return f"{service}: each group that it has a profile for holds {catalogue.max_sharing} services already"

    def missing(group: Group) -> int:
        return catalogue.missing_bytes((*group.services, service), group.num_devices, group.kv_bytes)

    best = min(open_ones, key=missing)
    needed = footprints[best.num_devices].num_bytes
    say = catalogue.measure.say
    return (
        f"{service}: {catalogue.measure.what} take {say(needed)}; {best.id} has the most room, "
        f"{say(needed - missing(best))}: {say(missing(best))} too little"
    )
