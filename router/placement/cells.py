"""A plan in parts that can be evaluated by themselves, because requests of one part never meet those of another."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from mesh.messages import Role
from router.placement.plan import Group, Plan

Engine = tuple[int, tuple[str, ...], Role]  # devices, services, role
ALL = Fraction(1)


@dataclass(frozen=True, slots=True)
class Cell:
    """Engines among which requests are dispatched, and which part of each service's requests comes here.

    Two cells that are equal behave the same: neither hosts nor names of groups are in it.
    """

    engines: tuple[Engine, ...]
    shares: tuple[tuple[str, Fraction], ...]


def whole(plan: Plan) -> Cell:
    """All engines, all requests: nothing is left out."""
    engines = tuple(sorted(_engine(group) for group in plan.groups if group.services))
    return Cell(engines, tuple((service, ALL) for service in sorted(plan.services)))


def cells(plan: Plan) -> Mapping[Cell, int]:
    """How many there are of each.

    An engine for both phases is one; engines for one phase that serve the same service belong together. A service's
    requests are taken to come to its cells in proportion to their devices.
    """
    devices = Counter[str]()
    for group in plan.groups:
        for service in group.services:
            devices[service] += group.num_devices
    return Counter(_cell(groups, devices) for groups in _connected(plan))


def _cell(groups: Iterable[Group], devices: Mapping[str, int]) -> Cell:
    here = Counter[str]()
    for group in groups:
        for service in group.services:
            here[service] += group.num_devices
    shares = tuple((service, Fraction(here[service], devices[service])) for service in sorted(here))
    return Cell(tuple(sorted(map(_engine, groups))), shares)


def _engine(group: Group) -> Engine:
    return group.num_devices, group.services, group.role


def _connected(plan: Plan) -> list[list[Group]]:
    found: list[list[Group]] = []
    for group in plan.groups:
        if not group.services:
            continue
        if group.role is Role.MULTIPLEX:
            found.append([group])
            continue
        meets = [groups for groups in found if groups[0].role is not Role.MULTIPLEX and _share_any(groups, group)]
        found = [groups for groups in found if groups not in meets]
        found.append([*(other for groups in meets for other in groups), group])
    return found


def _share_any(groups: Iterable[Group], group: Group) -> bool:
    return any(service in other.services for other in groups for service in group.services)
