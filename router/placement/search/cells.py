"""A plan in parts that can be evaluated by themselves, because requests of one part never meet those of another."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mesh.wire.control import Role
from router.placement.search.plan import Group, Plan

ROUNDS = 6
MOST_PARTS = 12
LEAST_SHARE = 1e-3
LEAST_DEMAND = 1e-6

Engine = tuple[int, tuple[str, ...], Role, int]  # devices, services, role, and bytes for KV or `WHAT_WEIGHTS_LEAVE`
WHAT_WEIGHTS_LEAVE = -1
ALL = Fraction(1)


@dataclass(frozen=True, slots=True)
class Cell:
    """Engines among which requests are dispatched, and which part of each service's requests comes here.

    Two cells that are equal behave the same: neither hosts nor names of groups are in it.
    """

    engines: tuple[Engine, ...]
    shares: tuple[tuple[str, Fraction], ...]


def islands(plan: Plan) -> Mapping[Cell, int]:
    """All engines and all requests: those together that share a service, directly or through others."""
    found = _together([group for group in plan.groups if group.services], lambda _: True)
    return Counter(_island(groups) for groups in found)


def _island(groups: Sequence[Group]) -> Cell:
    services = sorted({name for group in groups for name in group.services})
    return Cell(tuple(sorted(map(engine_of, groups))), tuple((name, ALL) for name in services))


def cells(plan: Plan, demand: Mapping[str, float]) -> Mapping[Cell, int]:
    """Return how many cells there are of each kind. ``demand``: how many devices each service keeps busy.

    An engine for both phases is one; engines for one phase that serve the same service belong together. A service's
    requests are taken to come to its cells such that all are as busy, as far as its choices allow.
    """
    connected = _connected(plan)
    shares = _balanced(connected, demand)
    return Counter(
        Cell(tuple(sorted(map(engine_of, groups))), tuple((name, _rounded(own[name])) for name in sorted(own)))
        for groups, own in zip(connected, shares, strict=True)
    )


def _balanced(connected: Sequence[Sequence[Group]], demand: Mapping[str, float]) -> list[dict[str, float]]:
    """Of each service, the share of its requests that comes to each part.

    The shares make the sum of squared loads, each over its devices, least: one service after the other fills up what
    the others leave, until nothing moves much.
    """
    devices = [sum(group.num_devices for group in groups) for groups in connected]
    shares = [{name: 0.0 for group in groups for name in group.services} for groups in connected]
    places: dict[str, list[int]] = {}
    for index, own in enumerate(shares):
        for name in own:
            places.setdefault(name, []).append(index)
    load = [0.0] * len(connected)
    for _ in range(ROUNDS):
        for name, where in places.items():
            asked = demand.get(name, 0.0) or LEAST_DEMAND
            for index in where:
                load[index] -= asked * shares[index][name]
            poured = _poured(asked, [load[index] for index in where], [devices[index] for index in where])
            for index, amount in zip(where, poured, strict=True):
                shares[index][name] = amount / asked
                load[index] += amount
    return shares


def _poured(amount: float, loads: Sequence[float], devices: Sequence[int]) -> list[float]:
    """What comes to each place: those that get anything are as busy as each other, and no busier than the rest."""
    order = sorted(range(len(loads)), key=lambda index: loads[index] / devices[index])
    level, filled_load, filled_devices = 0.0, 0.0, 0
    for index in order:
        if filled_devices and loads[index] / devices[index] >= level:
            break
        filled_load += loads[index]
        filled_devices += devices[index]
        level = (amount + filled_load) / filled_devices
    return [max(0.0, level * own - load) for load, own in zip(loads, devices, strict=True)]


def _rounded(share: float) -> Fraction:
    """So that parts that are nearly the same are the same."""
    if share * MOST_PARTS < 1:
        return Fraction(1, round(1 / share)) if share > LEAST_SHARE else Fraction(0)
    return Fraction(share).limit_denominator(MOST_PARTS)


def engine_of(group: Group) -> Engine:
    """Return what an engine is, whatever its name and host."""
    kv_bytes = WHAT_WEIGHTS_LEAVE if group.kv_bytes is None else group.kv_bytes
    return group.num_devices, group.services, group.role, kv_bytes


def _connected(plan: Plan) -> list[list[Group]]:
    return _together([group for group in plan.groups if group.services], lambda group: group.role is not Role.MULTIPLEX)


def _together(groups: Iterable[Group], may_meet: Callable[[Group], bool]) -> list[list[Group]]:
    """Groups that may meet and share a service belong together."""
    found: list[list[Group]] = []
    for group in groups:
        meets = [others for others in found if may_meet(group) and may_meet(others[0]) and _share_any(others, group)]
        found = [others for others in found if others not in meets]
        found.append([*(other for others in meets for other in others), group])
    return found


def _share_any(groups: Iterable[Group], group: Group) -> bool:
    return any(service in other.services for other in groups for service in group.services)
